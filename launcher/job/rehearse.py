"""Options of a rehearsal."""

from dataclasses import dataclass

from launcher.job.option import option


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearse:
    """How a rehearsal runs the job where there is no accelerator or no native stack."""

    entry: str = option(
        "core",
        "What runs: our trainer on the real megatron-core, or the backend's own entry point on CPU.",
        choices=("core", "native"),
    )
    shrink: bool = option(False, "Scale the model down to this machine, keeping topology and switches.")
    fake_world: bool = option(False, "Play ranks of the full world size in one process, one iteration.")
    ranks: tuple[int, ...] = option((), "fake_world: ranks to play; none: first and last rank of every pipeline stage.")
    max_processes: int | None = option(
        None, "shrink: most processes on this machine; none: one per core, at least 2.", minimum=1
    )
