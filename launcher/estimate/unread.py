"""Fields that a reader could expect to matter and that the estimate does not look at: named in the answer where set."""

from operator import attrgetter

from launcher.job import Job, field_at

_UNREAD = {
    "parallel.cp_window": "rings are counted as one ring",
    "parallel.cp_mask_type": "attention is counted as causal",
    "parallel.tp_2d_x": "2-D tensor parallelism is counted as one-dimensional",
    "parallel.tp_2d_y": "2-D tensor parallelism is counted as one-dimensional",
    "recompute.activation_num_layers": "the activation function is counted as recomputed in every layer",
    "recompute.norm_num_layers": "normalisations are counted as recomputed in every layer",
    "recompute.in_bubble": "recomputation is counted in full",
    "recompute.in_advance": "recomputation is counted in full",
    "recompute.communication": "communication is counted as repeated",
    "offload.modules": "swapped modules are counted as kept on the device",
    "offload.optimizer_times": "the swapped optimizer is counted as moved at once",
    "offload.activation_layers": "offloaded layers are counted as kept on the device",
    "moe.deepep": "counted as a plain all-to-all",
    "moe.tp_extend_ep": "experts are counted as split over etp",
    "moe.token_drop_policy": "tokens are counted as evenly spread",
    "optimizer.main_grads_dtype": "precision.grad_reduce_in_fp32 decides about gradients",
    "precision.fp8_recipe": "scaling factors and their kernels are not counted",
    "kernels.deterministic": "counted with the fastest kernels",
    "kernels.rope_fusion": "counted as fused",
    "kernels.rmsnorm_fusion": "counted as fused",
    "kernels.masked_softmax_fusion": "counted as fused",
    "kernels.bias_dropout_fusion": "counted as fused",
}
# Values that say the same as what is counted.
_SAME = {"kernels.rope_fusion": True, "kernels.rmsnorm_fusion": True, "kernels.bias_dropout_fusion": True}


_READ = attrgetter(*_UNREAD)


def unread(job: Job) -> list[str]:
    """Return a note for every field that the user has set and that does not change the estimate."""
    notes = []
    for path, value in zip(_UNREAD, _READ(job), strict=True):
        if value is None or value is False or value == () or value == _SAME.get(path):
            continue
        if value != field_at(path).default:
            notes.append(f"{path}: does not change the estimate ({_UNREAD[path]})")
    return notes
