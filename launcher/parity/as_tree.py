"""A finished comparison as plain data, for `launch parity --json` and parity.json."""

from typing import Any

from launcher.parity.compare import as_tree as compared_as_tree
from launcher.parity.compare import finite
from launcher.parity.request import Result


def as_tree(result: Result) -> dict[str, Any]:
    """Return plain data for --json."""
    by_label = {side.label: side for side in result.sides}
    return {
        "ok": result.agrees,
        "folder": str(result.folder),
        "reference": result.trained[0].label,
        "sides": [
            {
                "side": each.label,
                "backend": by_label[each.label].backend.name if each.label in by_label else None,
                "version": by_label[each.label].version if each.label in by_label else None,
                "entry": by_label[each.label].entry if each.label in by_label else None,
                "iterations": [
                    {
                        "iteration": one.iteration,
                        "loss": finite(one.loss),
                        "grad_norm": finite(one.grad_norm),
                        "skipped": one.skipped,
                    }
                    for one in each.iterations
                ],
                "seconds": round(each.seconds, 1),
                "command": each.command,
                "log": each.log,
                "problem": each.problem or None,
            }
            for each in result.trained
        ],
        "spread_measured": result.reordered is not None and not result.reordered.problem,
        "spread_problem": result.spread_problem or None,
        "compared": [compared_as_tree(each) for each in result.compared],
        "parameters": {label: each.as_tree() for label, each in result.parameters.items()},
        "routing": {label: each.as_tree() for label, each in result.routing.items()},
        "located": {
            label: {
                "stage": each.stage or None,
                "gradient": each.backward,
                "relative": finite(each.relative),
                "settings": dict(each.settings),
                "problem": each.problem or None,
            }
            for label, each in result.located.items()
        },
    }
