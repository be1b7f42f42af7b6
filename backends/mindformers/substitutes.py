"""What MindFormers does in place of values of other backends' jobs that it cannot take."""

from launcher.mapping.substitute import Substitute, plain_exchange, without


def substitutes() -> tuple[Substitute, ...]:
    """Return the table."""
    return (
        plain_exchange(),
        without(
            "checkpoint.no_load_optim",
            lambda job: bool(job.checkpoint.no_load_optim) and job.checkpoint.load is None,
            "without a checkpoint to resume there is no optimizer's state",
        ),
        Substitute(
            fields=("checkpoint.no_load_optim",),
            when=lambda job: bool(job.checkpoint.no_load_optim) and job.checkpoint.load is not None,
            put=lambda job: {"checkpoint.no_load_optim": None, "checkpoint.finetune": True},
            why="a start from the weights alone is a new run (checkpoint.finetune=true)",
        ),
    )
