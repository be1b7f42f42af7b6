"""Small jobs for the estimate's tests."""

from typing import Any

from launcher.job import Job, build, derive

_MACHINE = {
    "name": "test device",
    "memory_gib": 80.0,
    "bf16_tflops": 1000.0,
    "memory_bandwidth_gbs": 3000.0,
    "intra_node_gbs": 900.0,
    "inter_node_gbs": 50.0,
}
_MODEL = {
    "num_hidden_layers": 16,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
}


def job_with(**sections: dict[str, Any]) -> Job:
    """Return a dense job on one node of eight devices, with some values of its sections replaced."""
    tree: dict[str, dict[str, Any]] = {
        "hardware": dict(_MACHINE),
        "model": dict(_MODEL),
        "batch": {"micro_batch_size": 1, "global_batch_size": 64, "seq_length": 4096},
        "parallel": {"distributed_optimizer": True},
        "kernels": {"attention_backend": "flash"},
        "cluster": {"nodes": 1, "devices_per_node": 8},
    }
    for name, values in sections.items():
        tree[name] = {**tree.get(name, {}), **values}
    job, problems = build(tree)
    assert not problems, problems
    return derive(job)


MOE = {
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1024,
    "shared_expert_intermediate_size": 1024,
    "first_k_dense_replace": 1,
}
