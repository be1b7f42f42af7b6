"""MindSpeed-LLM mapping rows for recomputation and offloading."""

from backends.megatron_lm.mapping.factories import when_set
from launcher.mapping.rows import Row, computed, switch


def recompute() -> tuple[Row, ...]:
    """Return the rows of recomputing activation functions and norms, and of recompute counts per stage."""
    return (
        switch("recompute.activation", "recompute-activation-function"),
        when_set("recompute.activation_num_layers", "recompute-activation-function-num-layers"),
        switch("recompute.norm", "recompute-norm"),
        when_set("recompute.norm_num_layers", "recompute-norm-num-layers"),
        switch("recompute.per_pp_rank", "enable-recompute-layers-per-pp-rank"),
        switch("recompute.in_advance", "recompute-in-advance"),
    )


def in_bubble() -> Row:
    """Return the row of recomputation inside pipeline bubbles."""
    return switch("recompute.in_bubble", "recompute-in-bubble")


def swap() -> tuple[Row, ...]:
    """Return the rows of swapping to host memory."""
    return (
        switch("offload.attention", "swap-attention"),
        computed(
            ("offload.modules",),
            ("swap-modules",),
            lambda job: (("swap-modules", ",".join(job.offload.modules)),) if job.offload.modules else (),
            lambda view: (
                {"offload.modules": tuple(str(view.take("swap-modules")).split(","))}
                if view.has("swap-modules")
                else {}
            ),
            note="Names match as parts of module names; of the default ones only self_attention still exists.",
        ),
        switch("offload.optimizer", "swap-optimizer"),
        when_set("offload.optimizer_times", "swap-optimizer-times"),
    )
