"""The pipeline schedule of a job, for the simulator."""

from launcher.estimate.sizes import Sizes
from launcher.pipeline_schedule.order import Schedule


def schedule_of(sizes: Sizes) -> Schedule:
    """Return the pipeline schedule of a job."""
    return Schedule(
        stages=sizes.pp,
        chunks=sizes.vpp,
        micro_batches=sizes.micro_batches,
        group=sizes.microbatch_group,
        kind=sizes.schedule,
        late_weights=sizes.late_weights,
    )
