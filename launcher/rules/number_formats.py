"""Number formats of matrix products: those that a machine lacks."""

from collections.abc import Iterator

from launcher.job import Job
from launcher.job.number_formats import NVFP4, NumberFormat, format_of, lacks, nearest
from launcher.rules.registry import RuleContext, Violation, rule


def _lacking(job: Job, wanted: NumberFormat, fields: tuple[str, ...]) -> Violation:
    works = " ".join(f"{path}={'null' if value is None else value}" for path, value in nearest(job.hardware, wanted))
    return Violation(
        message=f"{job.hardware.name} does not multiply in {wanted.title} (hardware.{wanted.peak} is not set): it "
        f"needs {wanted.needs}; nearest: {works}",
        fields=(*fields, "hardware.name"),
    )


@rule(
    "FP8-HARDWARE",
    source="data sheet of the hardware",
    reads="job.hardware.name job.hardware.bf16_tflops job.hardware.fp8_tflops job.hardware.fp8_blockwise_tflops "
    "job.hardware.mxfp8_tflops job.precision.fp8_format job.precision.fp8_recipe job.precision.fp4_format",
)
def fp8_runs_on_hardware(context: RuleContext) -> Iterator[Violation]:
    """FP8 needs hardware that multiplies in it with the scales of the job's recipe: per tensor, per block, MXFP8."""
    job = context.job
    if job.precision.fp8_format is None:
        return
    wanted = format_of(job.precision)
    if wanted is not NVFP4 and lacks(job.hardware, wanted):
        recipe = job.precision.fp8_recipe
        fields = ("precision.fp8_recipe", "precision.fp8_format") if recipe else ("precision.fp8_format",)
        yield _lacking(job, wanted, fields)


@rule(
    "FP4-HARDWARE",
    source="data sheet of the hardware",
    reads="job.hardware.name job.hardware.bf16_tflops job.hardware.fp8_tflops job.hardware.fp8_blockwise_tflops "
    "job.hardware.mxfp8_tflops job.hardware.nvfp4_tflops job.precision.fp4_format",
)
def fp4_runs_on_hardware(context: RuleContext) -> Iterator[Violation]:
    """NVFP4 needs hardware that multiplies in it."""
    job = context.job
    if job.precision.fp4_format is not None and lacks(job.hardware, NVFP4):
        yield _lacking(job, NVFP4, ("precision.fp4_format",))
