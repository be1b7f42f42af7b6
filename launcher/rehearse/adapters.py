"""Adapters that a rehearsal starts from: `lora.load`, converted for the trainer where it is in PEFT's format."""

import dataclasses
from pathlib import Path

from launcher.convert.lora.formats import adapter_in
from launcher.convert.lora.peft import FORMAT as PEFT
from launcher.job import Job
from launcher.plan import NodePlan

FOLDER = "initial_adapter"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InitialAdapters:
    """What the trainer's adapters start from.

    Attributes:
        load: torch_dist checkpoint of adapters; None: A as PEFT draws it, B 0.
        note: what is loaded, or why nothing is; "": the job starts from new adapters.
        prepare: what converts them before the trainer starts.
        refused: why they cannot be loaded; "": they can.
    """

    load: str | None = None
    note: str = ""
    prepare: tuple[NodePlan, ...] = ()
    refused: str = ""


def initial_adapters(job: Job, folder: str) -> InitialAdapters:
    """Return the adapters that a rehearsed job starts from; `folder` takes converted ones."""
    load = job.lora.load
    if job.lora.rank is None or load is None:
        return InitialAdapters()
    if job.rehearse.shrink or job.rehearse.fake_world:
        reason = "they do not fit the smaller model" if job.rehearse.shrink else "a fake world loads none"
        return InitialAdapters(note=f"new adapters: {load} is not loaded ({reason})")
    found = adapter_in(Path(load).expanduser()) if "$" not in load else None
    if found is None:
        return InitialAdapters(refused="no adapter is there; works: a folder with adapter_config.json")
    if found.name != PEFT.name:
        return InitialAdapters(load=load, note=f"adapters: loaded from {load}")
    model = job.model.path
    if model is None or not (Path(model).expanduser() / "config.json").is_file():
        return InitialAdapters(refused="converting it needs model.path=DIR with the config.json of its model")
    out = f"{folder}/{FOLDER}"
    # Written for one tensor-parallel rank: the order of gate and up that the trainer splits as it does the weight.
    command = ("convert", "hf-to-mcore", "--adapter", load, "--model", model, "--out", out, "--overwrite")
    return InitialAdapters(
        load=out,
        note=f"adapters: loaded from {load} ({found.title}, converted first)",
        prepare=(NodePlan(rank=0, argv=("python", "-m", "launcher", *command)),),
    )
