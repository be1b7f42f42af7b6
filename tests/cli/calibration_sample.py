"""A calibration of three layouts, one held out, for the screens."""

from launcher.api import compose
from launcher.calibrate.calibrate import Calibration, Request
from launcher.calibrate.fit import Fitted, Observation, Row


def calibration() -> Calibration:
    """Return what `launch calibrate` would have found."""
    job = compose(["+recipe=tiny_qwen3"])
    layouts = ("sequence 128, batch 2", "tp 2 sp, sequence 256", "pp 2, 4 micro-batches, no recomputation")
    rows = tuple(
        Row(
            observation=Observation(
                name=name, job=job, step_s=0.125, peak_bytes=memory, held_out=memory is None, spread=0.01, steps=8
            ),
            step_s=0.13,
            peak_bytes=3 * 2**27,
        )
        for name, memory in zip(layouts, (2**28, 2**30, None), strict=True)
    )
    return Calibration(
        fitted=Fitted(hardware=job.hardware, fields=(), unmeasured=("inter_node_gbs",), rows=rows),
        request=Request(overrides=(), config_dirs=(), steps=8, layouts=None, rounds=1, clock="wall"),
        device="Intel Xeon",
        threads=1,
        words=(),
        loads=(0.5, 1.25),
        noisy=(layouts[1],),
        notes=("not measured: pipeline stages, whose steps of one processor do not overlap",),
    )
