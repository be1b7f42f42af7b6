"""Options of a rehearsal."""

from dataclasses import dataclass

from launcher.job.option import option


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearse:
    """How a rehearsal runs the job where there is no accelerator or no native stack."""

    entry: str = option(
        "core",
        "Entry point: Launch's trainer on the real megatron-core, or the backend's own on CPU.",
        choices=("core", "native"),
    )
    device: str | None = option(
        None,
        "entry=core: device of the processes; none: cuda where torch sees one, else cpu. FP8 needs cuda here.",
        choices=("cpu", "cuda"),
    )
    shrink: bool = option(False, "Scale the model down to this machine, keeping topology and switches.")
    fake_world: bool = option(False, "Simulate ranks of the full world size in one process, one iteration.")
    ranks: tuple[int, ...] = option(
        (), "fake_world: ranks to simulate; none: first and last rank of every pipeline stage."
    )
    max_processes: int | None = option(
        None, "shrink: maximum number of processes on this machine; none: one per core, at least 2.", minimum=1
    )
