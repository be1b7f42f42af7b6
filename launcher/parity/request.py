"""What a comparison is asked, and what it answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launcher.parity.compare import Compared
from launcher.parity.locate import Located
from launcher.parity.parameters import ParameterDifference
from launcher.parity.routing import Flips
from launcher.parity.runs import Trained
from launcher.parity.sides import Entry, Side


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
        tolerance: largest relative difference of loss and gradient norm, to which those of parameters and tensors keep
            their ratio; None: by number format and measured spread.
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
        compared: every training but the first, beside the first.
        parameters: the parameters after training beside the reference's, by the label of the side.
        located: the first tensor that differs, by the label of the side; only where it was asked for.
        routing: routing flips of each side, by its label, and of the reordered reference; {}: a model without routers.
    """

    folder: Path
    sides: tuple[Side, ...]
    trained: tuple[Trained, ...]
    reordered: Trained | None
    compared: tuple[Compared, ...]
    parameters: Mapping[str, ParameterDifference] = field(default_factory=dict)
    located: Mapping[str, Located] = field(default_factory=dict)
    routing: Mapping[str, Flips] = field(default_factory=dict)

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
