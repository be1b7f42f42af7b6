"""What MindSpeed-LLM does in place of values of other backends' jobs that it cannot take."""

from backends.megatron_lm.substitutes import undistributed_activations
from launcher.mapping.substitute import Substitute, without


def substitutes() -> tuple[Substitute, ...]:
    """Return the table."""
    return (
        undistributed_activations(),
        without(
            "lora.dropout",
            lambda job: bool(job.lora.dropout),
            "its adapters have no dropout",
            affects_training=True,
        ),
        without(
            "checkpoint.save_safetensors",
            lambda job: bool(job.checkpoint.save_safetensors) and job.lora.rank is not None,
            "adapters are not converted while it trains: launch convert mcore-to-hf afterwards",
        ),
    )
