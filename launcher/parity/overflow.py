"""Names a loss scale with which the gradients of fp16 are finite, where they overflow in every iteration.

python -m launcher.parity.overflow OPTIONS.json prints the largest one at iteration 1 of the reference, or null.
"""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from launcher.parity.reference import Options, decoded, loaded, next_token_gradients
from launcher.parity.reference_precision import LossScale, MainParameters
from launcher.parity.reference_routers import Routers
from launcher.parity.refusals import not_refused
from launcher.parity.request import Request
from launcher.parity.runs import NO_UPDATE, Trained
from launcher.parity.samples import reference_lacks, reference_options
from launcher.parity.sides import CannotCompare, Side


def check_updates(request: Request, side: Side, first: Trained, model: Path, folder: Path) -> None:
    """Refuse to compare with a training that updated no weights.

    Args:
        side: the first one.
        first: the training that the others would be compared with.
        model: the shared model.
        folder: of the comparison.

    Raises:
        CannotCompare: with a change of the command line that makes it update weights.
    """
    if first.problem != NO_UPDATE:
        return
    works = () if reference_lacks(side.job) else _works(request, side, model, folder)
    raise CannotCompare(f"{first.label} {NO_UPDATE} (log: {first.log})", *works, job=side.job)


def _works(request: Request, side: Side, model: Path, folder: Path) -> list[str]:
    """Return the override with which the reference's gradients are finite, if there is one that no side refuses."""
    own = folder / "overflow"
    own.mkdir()
    options = reference_options(side.job, folder / "data", model=model, out=own / "trained")
    (own / "options.json").write_text(options.to_json(), encoding="utf-8")
    command = (sys.executable, "-m", "launcher.parity.overflow", str(own / "options.json"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (own / "log.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    largest: float | None = None if done.returncode else json.loads(done.stdout)
    if largest is None or options.scale is None:
        return []
    used = max(1.0, largest / 2)  # backends round differently
    word = f"precision.{'initial_loss_scale' if options.scale.dynamic else 'loss_scale'}={used:.0f}"
    return list(not_refused([(word, replace(request, overrides=[*request.overrides, word]))], folder))


def largest_scale(options: Options) -> float | None:
    """Return the largest power of 2 up to the options' loss scale with finite gradients at iteration 1; None: none."""
    torch, model, mtp = loaded(options)
    main = MainParameters(torch, model, sums_in_fp32=options.sums_in_fp32)
    routers = Routers(torch, model, options.routing)

    def is_finite(scale: float) -> bool:
        for parameter in main:
            parameter.grad = None
        scaled = replace(options, scale=LossScale(value=scale))
        next_token_gradients(torch, model, scaled, 0, mtp=mtp, routers=routers)
        return main.gather(scale)

    # By bisection: what overflows with a scale overflows with larger ones.
    finite, overflowing = -1, 1 + math.floor(math.log2(options.scale.value if options.scale is not None else 1.0))
    while overflowing - finite > 1:
        middle = (finite + overflowing) // 2
        if is_finite(2.0**middle):
            finite = middle
        else:
            overflowing = middle
    return None if finite < 0 else 2.0**finite


if __name__ == "__main__":
    print(json.dumps(largest_scale(Options(**decoded(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))))))
