"""Initial weights of a rehearsal: the checkpoint or Hugging Face folder it loads, converted for the trainer if needed.

`python -m launcher.rehearse.weights SPEC.json` converts; the trainer reads torch_dist as it is.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.convert.containers.errors import ConvertError
from launcher.convert.errors import WrongWord
from launcher.convert.formats import format_in, format_named
from launcher.convert.formats.format import Format, Layout
from launcher.job import Job, Origin, with_values
from launcher.job.build import build
from launcher.plan import NodePlan, PlanFile

if TYPE_CHECKING:
    from launcher.job.model import Model

FOLDER, SPEC = "initial_weights", "initial_weights.json"
_TRAINERS = "torch_dist"
_DERIVED = Origin(kind="derived", where="rehearsal")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InitialWeights:
    """What the trainer starts from.

    Attributes:
        job: the job without what the conversion replaces.
        note: what is loaded, or why the weights are random; "": the job trains from random weights.
        argv: arguments of the trainer that name the converted weights.
        files, prepare: what converts them before the trainer starts.
    """

    job: Job
    note: str = ""
    argv: tuple[str, ...] = ()
    files: tuple[PlanFile, ...] = ()
    prepare: tuple[NodePlan, ...] = ()


def initial_weights(job: Job, folder: str) -> InitialWeights:
    """Return the initial weights of a rehearsed job, by the folders on this machine; `folder` takes converted ones."""
    load = job.checkpoint.load
    if load is not None and not job.rehearse.fake_world:
        found = None if "$" in load else _format(load)
        if found is None or found.name == _TRAINERS:
            return InitialWeights(job=job, note=f"weights: loaded from {load}")
        note = (
            f"weights: loaded from {load} ({found.title}, converted first; its optimizer state is not read, training "
            "starts at iteration 1)"
        )
        return _converted(with_values(job, {"checkpoint.load": None}, _DERIVED), load, folder, note)
    if not job.model.starts_from_weights:
        return InitialWeights(job=job)
    path = job.model.path
    if job.rehearse.fake_world:
        reason = "a fake world loads none"
    elif job.rehearse.shrink:
        reason = "they do not fit the smaller model"
    elif path is not None and (found := _format(path)) is not None:
        return _converted(job, path, folder, f"weights: loaded from {path} ({found.title}, converted first)")
    else:
        reason = f"{path or job.model.hub_id or 'model.path'} is no folder with weights on this machine"
    return InitialWeights(job=job, note=f"random weights: pretrained weights are not loaded ({reason})")


def _format(folder: str) -> Format | None:
    try:
        return format_in(Path(folder).expanduser())
    except (WrongWord, ConvertError):
        return None


def _converted(job: Job, source: str, folder: str, note: str) -> InitialWeights:
    out, spec = f"{folder}/{FOLDER}", f"{folder}/{SPEC}"
    content = {
        "source": source,
        "out": out,
        "etp": job.parallel.etp,
        "experts_over_tp": bool(job.moe.tp_extend_ep),
        "model": dataclasses.asdict(job.model),
    }
    return InitialWeights(
        job=job,
        note=note,
        argv=("--pretrained-checkpoint", out),
        files=(PlanFile(path=spec, content=json.dumps(content, indent=2) + "\n"),),
        prepare=(NodePlan(rank=0, argv=("python", "-m", "launcher.rehearse.weights", spec)),),
    )


def convert(spec: dict[str, Any]) -> str:
    """Convert a folder for the trainer, and return one line on what was converted.

    Raises:
        ConvertError: the folder is not a checkpoint of the model, or a file is damaged.
    """
    from launcher.convert.conversion import Conversion
    from launcher.convert.convert import execute, prepare

    source = Path(spec["source"]).expanduser()
    form = format_in(source)
    layout = Layout(etp=spec["etp"], experts_over_tp=spec["experts_over_tp"])
    asked = Conversion(
        source=source,
        source_format=form,
        out=Path(spec["out"]).expanduser(),
        target_format=format_named(_TRAINERS),
        model=_model(source, form, spec["model"]),
        layout=Layout(),
        source_layout=layout,
        overwrite=True,
    )
    report = execute(prepare(asked), quiet=True)
    return f"weights: {source} ({form.title}), {report.parameters:,} parameters, converted to {asked.out}"


def _model(source: Path, form: Format, values: dict[str, Any]) -> "Model":
    """Return the model of a folder's config.json; the job's where it has none."""
    from launcher.convert.model import model_in

    folder = form.config(source)
    if folder is not None and (folder / "config.json").is_file():
        return model_in(folder)
    job, problems = build({"model": {name: value for name, value in values.items() if value is not None}})
    if problems:
        raise ConvertError([f"{problem.path} {problem.message}" for problem in problems])
    return job.model


def main() -> int:
    """Convert as the file that the command line names says; 1 where the conversion is refused."""
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        print(convert(spec), flush=True)
    except ConvertError as error:
        print(f"error: initial weights: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
