"""MindSpeed-LLM mapping rows for Weights & Biases."""

from collections.abc import Mapping

from launcher.job import Value
from launcher.mapping.rows import NativeView, Row, computed


def wandb() -> Row:
    """Return the row of the run name, which MindSpeed-LLM accepts only with --use-wandb."""
    return computed(
        ("logging.wandb_name",),
        ("use-wandb", "wandb-exp-name"),
        lambda job: (
            (("use-wandb", True), ("wandb-exp-name", job.logging.wandb_name))
            if job.logging.wandb_name is not None
            else ()
        ),
        _read_wandb,
        note="features_manager/dpo/dpo.py:12 @26.1.0",
    )


def _read_wandb(view: NativeView) -> Mapping[str, Value]:
    if not view.has("wandb-exp-name") or not view.peek("use-wandb"):
        return {}
    view.take("use-wandb")
    return {"logging.wandb_name": view.take("wandb-exp-name")}
