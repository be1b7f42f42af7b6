"""Measures one job on several backends: shared model and data, one run each, and a comparison."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path

from backends import CORE_BACKEND
from launcher.job import Job, output_dir
from launcher.parity.compare import Compared, compared, tolerances
from launcher.parity.conversations import TEMPLATES, template_of
from launcher.parity.locate import Located, located
from launcher.parity.model import make_model, with_tokenizer
from launcher.parity.parameters import ParameterDifference, compare_parameters, trained_weights
from launcher.parity.reordered import reordered_model
from launcher.parity.runs import Trained, launch_words, train
from launcher.parity.samples import reference_lacks, reference_options, write_samples
from launcher.parity.sides import (
    CannotCompare,
    Entry,
    Side,
    check_means,
    conversion_of,
    in_one_process,
    job_file,
    on_shared,
    side_of,
)
from launcher.pipeline import judge
from launcher.rehearse.cpu.tracer import VARIABLE as TRACE
from launcher.rehearse.native import missing, versions_in
from launcher.rehearse.sample_data import END_OF_DOCUMENT

TRANSFORMERS = "transformers"
# A wrong weight decay or Adam's epsilon left the tolerance of the losses at iteration 4.
_OPTIMIZER_SHOWS = 5
_LEAST_VOCABULARY = END_OF_DOCUMENT + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is compared.

    Attributes:
        overrides: the job.
        backends: NAME or NAME@VERSION, each once; the first one is the reference.
        iterations: iterations to train.
        reference: `transformers`, or None for the first backend.
        entry: entry of all sides; None: a backend's own where it is installed, else the embedded trainer for the
            dialect that it reads.
        pythons: interpreter of the ranks by backend name, where it is not the one of this program.
        environs: environment variables of the ranks by backend name, beside those of this program.
        tolerance: largest relative difference; None: by number format and measured spread.
        folder: what is written goes there; None: a new folder below `launch_output`.
        config_dirs: folders with the user's own recipes and groups.
        locate: where trainings differ, train both again in one process and name the first tensor that differs.
    """

    overrides: Sequence[str]
    backends: Sequence[str]
    iterations: int
    reference: str | None = None
    entry: Entry | None = None
    pythons: Mapping[str, str] = field(default_factory=dict)
    environs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tolerance: float | None = None
    folder: Path | None = None
    config_dirs: Sequence[str] = ()
    locate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A finished comparison.

    Attributes:
        folder: where everything was written.
        sides: the backends' trainings as they were planned.
        trained: all trainings, the reference first.
        reordered: the reference again, with its MLPs' sums in another order; None: not measured.
        tolerance: relative tolerance of loss and gradient norm, by iteration.
        compared: every training but the first, beside the first.
        parameters: the parameters after training beside the reference's, by the label of the side.
        located: the first tensor that differs, by the label of the side; only where it was asked for.
    """

    folder: Path
    sides: tuple[Side, ...]
    trained: tuple[Trained, ...]
    reordered: Trained | None
    tolerance: Mapping[int, tuple[float, float]]
    compared: tuple[Compared, ...]
    parameters: Mapping[str, ParameterDifference] = field(default_factory=dict)
    located: Mapping[str, Located] = field(default_factory=dict)

    @property
    def spread_problem(self) -> str:
        """Return why the second run of the reference failed; "" where it did not, or was not asked for."""
        return self.reordered.problem if self.reordered is not None else ""

    @property
    def agrees(self) -> bool:
        """Whether every training is within the tolerance of the first, and so are the parameters after it."""
        trainings = all(each.agrees for each in self.compared) and not self.trained[0].problem
        return trainings and all(each.agrees for each in self.parameters.values())


Show = Callable[[str], None]


def measure(request: Request, *, show: Show, advanced: Callable[[str, int, int], None]) -> Result:
    """Train the job on every backend and compare.

    Args:
        show: called with one line before each step.
        advanced: called with the label of a training, the iterations done, and all of them.

    Raises:
        CannotCompare: a backend is not installed, or refuses the job; nothing has been trained.
        ComposeError, Refused: the overrides do not describe a job, or there is no such version.
        OSError: the folder cannot be written.
    """
    sides = tuple(_sides(request))
    if request.locate and sides[0].job.task.type == "dpo":
        why = "--locate records the first pass of one model, and DPO's first pass is that of its reference model"
        raise CannotCompare(why, "without --locate")
    if request.reference is not None:
        _check_reference(sides[0].job)
    else:
        check_means(sides)
    folder = _new_folder(request, sides[0].job)
    try:
        model, jobs = _prepared(request, sides, folder, show)
    except (CannotCompare, OSError):
        shutil.rmtree(folder)  # it was new or empty
        raise
    trained: list[Trained] = []
    if request.reference is not None:
        show("transformers: trains")
        trained.append(_reference(request, sides[0].job, model, folder, advanced))
    for side, job in zip(sides, jobs, strict=True):
        trained.append(_train(side, job, folder / _name(side), request.iterations, show, advanced))
    measures = request.tolerance is None and not trained[0].problem
    again = _again(request, sides[0], model, folder, show, advanced) if measures else None
    allowed = tolerances(str(sides[0].job.precision.dtype), trained[0], again, request.tolerance)
    result = Result(
        folder=folder,
        sides=sides,
        trained=tuple(trained),
        reordered=again,
        tolerance=allowed,
        compared=tuple(
            compared(as_reported(trained[0], each.label, sides), each, allowed, iterations=request.iterations)
            for each in trained[1:]
        ),
        parameters=_parameters(request, sides, trained, model, folder),
    )
    if not request.locate or result.agrees:
        return result
    return replace(result, located=_locate(request, result, model, show))


def as_reported(reference: Trained, label: str, sides: Sequence[Side]) -> Trained:
    """Return the reference with the mean loss that a side reports: of predicted tokens, or of micro-batches."""
    side = next(side for side in sides if side.label == label)
    if side.loss_mean == "micro_batches":
        return reference
    values = (each if each.token_loss is None else replace(each, loss=each.token_loss) for each in reference.iterations)
    return replace(reference, iterations=tuple(values))


def _prepared(request: Request, sides: Sequence[Side], folder: Path, show: Show) -> tuple[Path, tuple[Job, ...]]:
    """Write model and data; return the model and the job of each side, which its backend accepts."""
    for line in sides[0].notes:
        show(f"shrunk: {line}")
    if request.iterations < _OPTIMIZER_SHOWS:
        show(
            f"--iterations {request.iterations}: loss and gradient norm show little of the optimizer before iteration "
            f"{_OPTIMIZER_SHOWS}"
        )
    show(f"model and data: {folder / 'shared'}")
    model = _model(sides[0].job, folder / "shared")
    try:
        write_samples(folder / "data", sides[0].job, request.iterations)
    except ValueError as error:
        raise CannotCompare(str(error), "fewer --iterations") from None
    jobs = tuple(on_shared(side, model=model, data=folder / "data", folder=folder / _name(side)) for side in sides)
    _check(sides, jobs)
    return model, jobs


def _check_reference(job: Job) -> None:
    """Refuse a job of which the reference does not compute something."""
    found = reference_lacks(job)
    if found:
        named = ", ".join(f"{path}={value}" for path, value, _ in found)
        works = " ".join(dict.fromkeys(override for _, _, override in found))
        raise CannotCompare(f"transformers as the reference does not compute {named}", works, job=job)
    if job.task.type != "pretrain" and template_of(job) is None:
        named = f"data.template={job.data.template or 'null'} of {job.model.model_type}"
        works = "data.template=" + "|".join(TEMPLATES)
        raise CannotCompare(f"transformers as the reference does not know the chat template {named}", works, job=job)


def _parameters(
    request: Request, sides: Sequence[Side], trained: Sequence[Trained], model: Path, folder: Path
) -> Mapping[str, ParameterDifference]:
    """Compare the weights that the trainings saved; a training that failed has none."""
    dtype, failed = str(sides[0].job.precision.dtype), {each.label for each in trained if each.problem}

    def of(side: Side) -> Path:
        own = folder / _name(side)
        return trained_weights(own / "run", side.backend.watch, model, own / "trained")

    def of_reference() -> Path:
        return of(sides[0]) if request.reference is None else folder / TRANSFORMERS / "trained"

    if trained[0].problem:
        return {}
    others = sides[1:] if request.reference is None else sides
    reference = cache(of_reference)
    return {
        side.label: compare_parameters(model, reference, partial(of, side), dtype=dtype)
        for side in others
        if side.label not in failed
    }


def _locate(request: Request, result: Result, model: Path, show: Show) -> Mapping[str, Located]:
    """Train the reference and each side that differs from it again, in one process, and compare their first passes."""
    differing = {each.label for each in result.compared if each.first is not None and not each.problem}
    retrained = [side for side in result.sides if side.label in differing]
    if not retrained:
        return {}
    show("trains again in one process, recording every layer")
    folder = result.folder / "located"
    if request.reference is None:
        reference = _traced(result.sides[0], model, result.folder, folder)
    else:
        reference = folder / f"{TRANSFORMERS}.pt"
        folder.mkdir()
        _reference(request, result.sides[0].job, model, result.folder, _silent, "traced", {TRACE: str(reference)})
    found = {}
    for side in retrained:
        recording = _traced(side, model, result.folder, folder)
        if reference.exists() and recording.exists():
            found[side.label] = located(side.job, reference, recording)
    return found


def _traced(side: Side, model: Path, whole: Path, folder: Path) -> Path:
    """Train a side in one process for as many iterations as its warm-up needs; return the recording of its first."""
    own = folder / _name(side)
    job = on_shared(replace(side, job=in_one_process(side.job)), model=model, data=whole / "data", folder=own)
    recording = folder / f"{_name(side)}.pt"
    folder.mkdir(exist_ok=True)
    _train(side, job, own, 0, _quiet, _silent, {TRACE: str(recording)})
    return recording


def _quiet(_line: str) -> None:
    """Show nothing."""


def _silent(_label: str, _count: int, _total: int) -> None:
    """Show nothing."""


def _sides(request: Request) -> Sequence[Side]:
    """Compose every side; refuse what is not installed, and jobs whose models differ."""
    made = []
    for backend in request.backends:
        name = backend.partition("@")[0]
        python = request.pythons.get(name)
        side = side_of(
            request.overrides,
            backend,
            entry=request.entry or "native",
            python=python,
            environ=request.environs.get(name, {}),
            config_dirs=request.config_dirs,
            iterations=request.iterations,
        )
        made.append(_with_entry(side, request.entry))
    if len({(side.backend.name, side.version) for side in made}) < len(made):
        raise CannotCompare("two of the backends are the same version", ",".join({side.backend.name for side in made}))
    first = made[0].job.model
    for side in made[1:]:
        if side.job.model != first:
            raise CannotCompare(f"the job is another model on {side.label} than on {made[0].label}")
    return made


def _with_entry(side: Side, asked: Entry | None) -> Side:
    """Return the side with an entry that can run here."""
    dialect = side.backend.name == CORE_BACKEND[0]
    if asked == "core" and not dialect:
        raise CannotCompare(
            f"--entry core: the embedded trainer reads the arguments of {CORE_BACKEND[0]}, not of {side.backend.name}",
            "without --entry (each backend's own entry point where it is installed)",
        )
    lacking = _lacking(side)
    if asked == "core" or (asked is None and lacking and dialect and side.python is None):
        if side.python is not None:
            raise CannotCompare("--entry core: the embedded trainer runs in this Python", "without --python")
        return replace(side, entry="core", label=f"{side.label} (core)")
    if lacking:
        name = side.backend.name
        works = [f"--python {name}=DIR/bin/python (an environment that has it)"]
        raise CannotCompare(f"{side.backend.title} cannot run here: {'; '.join(lacking)}", *works)
    return side


def _lacking(side: Side) -> list[str]:
    if side.backend.native_cpu is None:
        return ["it has no entry point on CPU"]
    native = import_module(side.backend.native_cpu).NATIVE_CPU
    return missing(native, {**os.environ, **side.environ}, versions_in(side.python, native))


def _new_folder(request: Request, job: Job) -> Path:
    if request.folder is not None:
        if request.folder.exists() and any(request.folder.iterdir()):
            raise CannotCompare(f"{request.folder} is not empty; nothing is overwritten", "another folder")
        folder = request.folder
    else:
        first = Path(output_dir(job)).parent / f"parity-{job.name or 'job'}"
        folder, number = first, 1
        while folder.exists():
            number += 1
            folder = first.with_name(f"{first.name}-{number}")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute()


def _name(side: Side) -> str:
    """Return the name of a side's folder."""
    return side.label.replace(" (core)", "-core").replace("@", "-")


def _model(job: Job, folder: Path) -> Path:
    """Return the directory of the shared model: the user's weights, or random ones of the small job."""
    folder.mkdir(parents=True)
    if (job.model.vocab_size or 0) < _LEAST_VOCABULARY:
        raise CannotCompare(f"model.vocab_size={job.model.vocab_size}: the data set needs {_LEAST_VOCABULARY} tokens")
    if job.model.path is not None and Path(job.model.path).is_dir():
        if not any(Path(job.model.path).glob("*.safetensors")):
            raise CannotCompare(f"model.path={job.model.path}: no weights (*.safetensors) there", job=job)
        return with_tokenizer(Path(job.model.path), folder)
    try:
        from safetensors import SafetensorError

        return make_model(job, folder)
    except ModuleNotFoundError as error:
        raise CannotCompare(f"{error.name} is needed to make the model", f"pip install {error.name}") from None
    except (ValueError, SafetensorError) as error:
        raise CannotCompare(f"no model of this job can be made: {error}") from None


def _check(sides: Sequence[Side], jobs: Sequence[Job]) -> None:
    """Refuse before anything trains what a backend would refuse."""
    for side, job in zip(sides, jobs, strict=True):
        outcome = judge(job)
        errors = [finding for finding in outcome.findings if finding.severity == "error"]
        if errors:
            raise CannotCompare(f"the small job is refused on {side.label}", findings=errors, job=job)


def _train(
    side: Side,
    job: Job,
    folder: Path,
    iterations: int,
    show: Show,
    advanced: Callable[[str, int, int], None],
    environ: Mapping[str, str] | None = None,
) -> Trained:
    """Convert the weights if the backend needs it, and train; what fails is the result's problem."""
    folder.mkdir(parents=True)
    file = folder / "job.yaml"
    file.write_text(job_file(side, job), encoding="utf-8")
    loads = [f"checkpoint.load={job.checkpoint.load}"] if job.checkpoint.load is not None else []
    command = ("launch", "run", f"+job={file}", *loads)
    conversion = conversion_of(side, job)
    if conversion:
        show(f"{side.label}: converts the weights")
        done = subprocess.run([*launch_words(), *conversion[1:]], capture_output=True, text=True, check=False)
        if done.returncode:
            (folder / "log.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
            return Trained(
                label=side.label,
                iterations=(),
                problem=f"launch convert: {_first_line(done.stderr)}",
                command=shlex.join(conversion),
                log=str(folder / "log.txt"),
                seconds=0.0,
            )
    show(f"{side.label}: trains")
    return train(
        side.label,
        (*launch_words(), *command[1:]),
        folder,
        environ={**side.environ, **(environ or {})},
        advanced=lambda count: advanced(side.label, count, iterations),
    )


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "no message"


def _reference(
    request: Request,
    job: Job,
    model: Path,
    folder: Path,
    advanced: Callable[[str, int, int], None],
    name: str = TRANSFORMERS,
    environ: Mapping[str, str] | None = None,
) -> Trained:
    """Train with transformers in a child process."""
    own = folder / name
    own.mkdir()
    options = reference_options(job, folder / "data", model=model, out=own / "trained")
    (own / "options.json").write_text(options.to_json(), encoding="utf-8")
    argv = (sys.executable, "-m", options.module, str(own / "options.json"))
    return train(
        name, argv, own, environ=environ or {}, advanced=lambda count: advanced(name, count, request.iterations)
    )


def _again(
    request: Request, side: Side, model: Path, folder: Path, show: Show, advanced: Callable[[str, int, int], None]
) -> Trained | None:
    """Train the reference once more on the reordered model; None where its MLPs are not known."""
    other = folder / "shared" / "reordered"
    if not reordered_model(model, other):
        return None
    show("the reference again, with the sums of its MLPs in another order")
    if request.reference is not None:
        return _reference(request, side.job, other, folder, advanced, f"{TRANSFORMERS}-reordered")
    own = folder / f"{_name(side)}-reordered"
    job = on_shared(side, model=other, data=folder / "data", folder=own)
    return _train(side, job, own, request.iterations, _quiet, advanced)
