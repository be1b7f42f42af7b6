"""Activations that wait on the host from forward to backward: which tensors, and their copies."""

from collections.abc import Iterable
from dataclasses import replace

from launcher.estimate.operation import Layer, Operation

# Modules of fine-grained offloading (megatron-core 0.16.1 transformer_config.py, offload_modules) and the operations
# whose kept tensors go to the host; self_attention is what MindSpeed calls attention as a whole (--swap-modules).
OFFLOADED: dict[str, tuple[str, ...]] = {
    "attn_norm": ("input norm", "separate input norm"),
    "qkv_linear": ("qkv", "q down", "q", "kv down"),
    "core_attn": ("core attention", "softmax"),
    "attn_proj": ("out",),
    "mlp_norm": ("feed-forward norm", "separate feed-forward norm"),
    "expert_fc1": ("expert up",),
    "moe_act": ("expert activation",),
    "self_attention": ("qkv", "q down", "q up", "q", "kv down", "kv up", "core attention", "softmax", "out"),
}
# Kernels of Transformer Engine, which marks what its modules save (mark_activation_offload, transformer_engine/pytorch
# @2.3 module/linear.py, layernorm_linear.py, grouped_linear.py, attention.py); routing and dropout are not its.
_OTHERS = frozenset({"router", "dispatch", "combine", "residual", "dropout", "rope", "mla rope"})


def operations_on_host(modules: Iterable[str], operations: Iterable[Operation], *, layer: bool) -> frozenset[str]:
    """Return the names of the operations whose kept tensors go to the host.

    Args:
        layer: the whole layer is offloaded (offload.activation_layers).
    """
    if layer:
        return frozenset({op.name for op in operations}) - _OTHERS
    return frozenset({name for module in modules for name in OFFLOADED.get(module, ())})


def offloaded(operations: list[Operation], names: frozenset[str], smallest: float) -> tuple[list[Operation], float]:
    """Return the operations with kept tensors of some of them on the host until the backward, and the bytes copied.

    Copies run on streams of their own: a tensor leaves the device while the next operation runs, and comes back while
    the backward of the next offloaded operation runs, that of the following layer for the last one (megatron-core
    0.16.1 fine_grained_activation_offload.py: record_stream in bulk_offload_group, bulk_reload after each group).

    Args:
        smallest: bytes; operations that keep less stay on the device.
    """
    places = [index for index, op in enumerate(operations) if op.name in names and op.keeps >= smallest]
    result = list(operations)
    for index in places:
        op = operations[index]
        result[index] = replace(op, keeps=0.0, restored=op.restored + op.keeps, frees=op.frees + op.keeps)
    for index, following in zip(places, [*places[1:], *places[:1]], strict=True):
        size = operations[index].keeps
        loading = result[following]
        result[following] = replace(loading, backward_needs=loading.backward_needs + size)
        if index + 1 < len(result):
            leaving = result[index + 1]
            result[index + 1] = replace(leaving, forward_needs=leaving.forward_needs + size)
    return result, sum(operations[index].keeps for index in places)


def with_copies(layer: Layer, seconds: float, window: int) -> Layer:
    """Return a layer that takes at least as long as its copies to the host, and back in the backward.

    The device's memory counts as free once its copy is done, so a copy that computation does not hide is waited for.

    Args:
        seconds: of the copies, each way.
        window: layers in whose time they may run.
    """
    late = max(0.0, seconds - window * (layer.forward + layer.forward_comm))
    later = max(0.0, seconds - window * (layer.backward + layer.backward_comm))
    if not late and not later:
        return layer
    return replace(layer, forward_comm=layer.forward_comm + late, backward_comm=layer.backward_comm + later)
