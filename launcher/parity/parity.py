"""Measures one job on several backends: shared model and data, the trainings, and a comparison."""

import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from backends import CORE_BACKEND
from launcher.job import Job, output_dir
from launcher.mapping.backend import get_backend
from launcher.outputs.unnamed import written_below
from launcher.parity import adapter
from launcher.parity.choose import check_installed, sides_of
from launcher.parity.compare import compared, tolerances
from launcher.parity.conversations import TEMPLATES, template_of
from launcher.parity.model import make_model, with_tokenizer
from launcher.parity.overflow import check_updates
from launcher.parity.parameters import ParameterDifference, compare_parameters, trained_weights
from launcher.parity.refusals import check_jobs
from launcher.parity.request import Request, Result, Show
from launcher.parity.retrace import locate
from launcher.parity.routing import between
from launcher.parity.runs import Trained
from launcher.parity.samples import reference_lacks, what_fits, write_samples
from launcher.parity.sides import (
    RANDOM_WEIGHTS,
    SHARED,
    CannotCompare,
    Side,
    check_means,
    on_shared,
    own_weights,
)
from launcher.parity.size import check_size
from launcher.parity.tolerance import coarsest, rounding, unmeetable
from launcher.parity.trainings import (
    REORDERED,
    TRANSFORMERS,
    name_of,
    train_again,
    train_reference,
    train_side,
)
from launcher.parity.weights import check_shapes, check_weights
from launcher.rehearse.sample_data import END_OF_DOCUMENT
from launcher.rules.sanity_checks import replaced_model

# A wrong weight decay or Adam's epsilon left the tolerance of the losses at iteration 4.
_OPTIMIZER_SHOWS = 5
_SIGNS = ",=[]{}'\"$"  # of Hydra's grammar
_START = "all sides start from one model in Hugging Face's format (model.path=DIR for your own, or random weights)"
_LEAST_VOCABULARY = END_OF_DOCUMENT + 1


def measure(request: Request, *, show: Show, advanced: Callable[[str, int, int], None]) -> Result:
    """Train the job on every backend and compare.

    Args:
        show: called with one line before each step.
        advanced: called with the label of a training, the iterations done, and all of them.

    Raises:
        CannotCompare: a backend is not installed, or refuses the job, and nothing has been trained; or the reference
            updated no weights.
        ComposeError, Refused: the overrides do not describe a job, or there is no such version.
        OSError: the folder cannot be written.
    """
    sides = sides_of(request)
    other = replaced_model(sides[0].job)
    if other:
        show(other)
    if request.reference is not None:
        _check_reference(sides[0].job)
    else:
        check_means(sides)
    folder = _new_folder(request, sides[0].job)
    _check_vocabulary(sides[0].job)
    check_weights(sides[0].job)
    check_size(request, sides[0].job, folder)
    check_shapes(sides[0].job)
    check_jobs(request, sides, folder)
    check_installed(request, sides)
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder = _claimed(request, sides[0].job)
    with written_below(folder):
        try:
            model, jobs = _prepared(request, sides, folder, show)
        except BaseException:  # Ctrl-C, too: nothing is trained yet
            _remove(folder, made)
            raise
        return _measured(request, sides, folder, model, jobs, show=show, advanced=advanced)


def _remove(folder: Path, made: Sequence[Path]) -> None:
    """Remove a folder, and those above it that were made for it."""
    shutil.rmtree(folder)
    for each in (each for each in made if each != folder):
        with contextlib.suppress(OSError):  # another run writes there
            each.rmdir()


def _measured(
    request: Request,
    sides: tuple[Side, ...],
    folder: Path,
    model: Path,
    jobs: Sequence[Job],
    *,
    show: Show,
    advanced: Callable[[str, int, int], None],
) -> Result:
    """Train on the shared model and data of a folder, and compare."""
    trained: list[Trained] = []
    if request.reference is not None:
        show("transformers: trains")
        trained.append(train_reference(request, sides[0].job, model, folder, advanced))
        check_updates(request, sides[0], trained[0], model, folder)
    for side, job in zip(sides, jobs, strict=True):
        trained.append(train_side(side, job, folder / name_of(side), request.iterations, show, advanced))
        check_updates(request, sides[0], trained[0], model, folder)
    measures = request.tolerance is None and not trained[0].problem and any(not each.problem for each in trained[1:])
    again = train_again(request, sides[0], model, folder, show, advanced) if measures else None
    formats = {each.label: _number_format(request, sides, each.label, show) for each in trained[1:]}

    result = Result(
        folder=folder,
        sides=sides,
        trained=tuple(trained),
        reordered=again,
        compared=tuple(
            compared(
                as_reported(trained[0], each.label, sides),
                each,
                tolerances(formats[each.label], trained[0], again, request.tolerance),
                iterations=request.iterations,
            )
            for each in trained[1:]
        ),
        parameters=_parameters(request, sides, trained, model, folder, formats, again),
        routing=between(sides[0].job, trained, again),
    )
    if not request.locate or result.agrees:
        return result
    return replace(result, located=locate(request, result, model, show))


def as_reported(reference: Trained, label: str, sides: Sequence[Side]) -> Trained:
    """Return the reference with the mean loss that a side reports: of predicted tokens, or of micro-batches."""
    side = next(side for side in sides if side.label == label)
    if side.loss_mean == "micro_batches":
        return reference
    values = (each if each.token_loss is None else replace(each, loss=each.token_loss) for each in reference.iterations)
    return replace(reference, iterations=tuple(values))


def _number_format(request: Request, sides: Sequence[Side], label: str, show: Show) -> str:
    """Return the coarser number format of a side and the reference, which sets the tolerance between them."""
    side = next(each for each in sides if each.label == label)
    own = str(side.job.precision.dtype)
    found = coarsest((own if request.reference is not None else sides[0].number_format, side.number_format))
    if found != own and request.tolerance is None:
        wide = rounding(found)
        show(f"{label}: {found}: tolerance {wide.loss:.0e} of the loss, {wide.grad_norm:.0e} of the gradient norm")
    return found


def _prepared(request: Request, sides: Sequence[Side], folder: Path, show: Show) -> tuple[Path, tuple[Job, ...]]:
    """Write model and data; return the model and the job of each side."""
    for side in sides:
        if side.lacking:
            show(f"{side.label}: Launch's trainer on megatron-core: {'; '.join(side.lacking)}")
    if sides[0].job.checkpoint.load is not None:
        show(f"checkpoint.load={sides[0].job.checkpoint.load} is not read: {_START}")
    for line in sides[0].notes:
        show(f"shrunk: {line}")
    if request.iterations < _OPTIMIZER_SHOWS:
        show(
            f"--iterations {request.iterations}: loss and gradient norm show little of the optimizer before iteration "
            f"{_OPTIMIZER_SHOWS}"
        )
    strict = unmeetable(str(sides[0].job.precision.dtype), request.tolerance)
    if strict:
        show(strict)
    show(f"model and data: {folder / 'shared'}")
    model = _model(sides[0].job, folder / SHARED)
    try:
        adapter.prepare(sides[0].job, [side.backend for side in sides], model, reference=request.reference is not None)
    except adapter.WrongAdapter as error:
        raise CannotCompare(str(error), *error.works, job=sides[0].job) from None
    try:
        write_samples(folder / "data", sides[0].job, request.iterations, model)
    except ValueError as error:
        works = what_fits(folder / "data", sides[0].job, request.iterations, model)
        raise CannotCompare(str(error), *works, job=sides[0].job) from None
    return model, tuple(
        on_shared(side, model=model, data=folder / "data", folder=folder / name_of(side)) for side in sides
    )


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
    request: Request,
    sides: Sequence[Side],
    trained: Sequence[Trained],
    model: Path,
    folder: Path,
    formats: Mapping[str, str],
    again: Trained | None,
) -> Mapping[str, ParameterDifference]:
    """Compare the weights that the trainings saved; a training that failed has none.

    Args:
        again: second training of the reference; None: there was none.
    """
    failed = {each.label for each in trained if each.problem}

    low_rank = sides[0].job.lora.rank is not None
    alpha = adapter.alpha_of(sides[0].job) if low_rank else None
    start = adapter.adapter_beside(model) if low_rank else model

    def of(side: Side, suffix: str = "") -> Path:
        own = folder / f"{name_of(side)}{suffix}"
        saved_by = get_backend(CORE_BACKEND[0]) if side.entry == "core" else side.backend
        source = (f"backend={saved_by.name}", f"backend.version={side.version}") if saved_by is side.backend else ()
        return trained_weights(own / "run", saved_by.watch, model, own / "trained", alpha=alpha, source=source)

    def of_reference(suffix: str = "") -> Path:
        return of(sides[0], suffix) if request.reference is None else folder / f"{TRANSFORMERS}{suffix}" / "trained"

    if trained[0].problem:
        return {}
    others = sides[1:] if request.reference is None else sides
    reference = cache(of_reference)
    second = (
        cache(partial(of_reference, REORDERED)) if again is not None and not again.problem and not low_rank else None
    )
    return {
        side.label: compare_parameters(
            start,
            reference,
            partial(of, side),
            allowed=rounding(formats[side.label], request.tolerance).parameters,
            again=second,
        )
        for side in others
        if side.label not in failed
    }


def _claimed(request: Request, job: Job) -> Path:
    """Make the folder of the comparison, and in it that of the model; no two comparisons get one."""
    while True:
        folder = _new_folder(request, job)
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # another comparison has begun there since
            (folder / SHARED).mkdir()
            return folder


def _new_folder(request: Request, job: Job) -> Path:
    """Return the absolute path of the folder that the comparison will make.

    Raises:
        CannotCompare: it has something in it, or a name that overrides of the runs in it cannot have.
    """
    if request.folder is not None:
        if request.folder.exists() and any(request.folder.iterdir()):
            raise CannotCompare(f"{request.folder} is not empty; nothing is overwritten", "-o with another folder")
        folder = request.folder
    else:
        first = Path(output_dir(job)).parent / f"parity-{job.name or 'job'}"
        folder, number = first, 1
        while folder.exists():
            number += 1
            folder = first.with_name(f"{first.name}-{number}")
    folder = folder.absolute()
    wrong = sorted(set(str(folder)) & set(_SIGNS))
    if wrong:
        raise CannotCompare(
            f"{folder}: overrides cannot name a folder with {' '.join(wrong)}",
            "-o DIR with an absolute path without them",
        )
    return folder


def _check_vocabulary(job: Job) -> None:
    """Refuse a model that the data set does not fit."""
    if (job.model.vocab_size or 0) < _LEAST_VOCABULARY:
        why = f"model.vocab_size={job.model.vocab_size}: the data set needs {_LEAST_VOCABULARY} tokens"
        raise CannotCompare(why, RANDOM_WEIGHTS, job=job)


def _model(job: Job, folder: Path) -> Path:
    """Return the directory of the shared model: the user's weights, or random ones of the small job."""
    weights = own_weights(job)
    if weights is not None:
        return with_tokenizer(weights, folder)
    try:
        from safetensors import SafetensorError

        return make_model(job, folder)
    except ModuleNotFoundError as error:
        raise CannotCompare(f"{error.name} is needed to make the model", f"pip install {error.name}") from None
    except (ValueError, SafetensorError) as error:
        raise CannotCompare(f"no model of this job can be made in {folder}: {error}") from None
