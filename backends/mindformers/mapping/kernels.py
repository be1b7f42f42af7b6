"""Rows of kernels in the model section; attention masks are in the data rows."""

from collections.abc import Iterable, Mapping

from backends.mindformers.mapping.legacy import modern
from backends.mindformers.mapping.support import key, require
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, mapped, same


def kernel_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of kernels in the model section."""
    return (
        _rope_fusion(version),
        same("kernels.rmsnorm_fusion", key("fused_norm")),
        same("kernels.bias_dropout_fusion", key("bias_dropout_fusion")),
        same("kernels.deterministic", "train_precision_sync", note="deterministic kernels and communication"),
        mapped(
            "precision.calculate_per_token_loss",
            "calculate_per_token_loss",
            bool,
            bool,
            note="a key of the top level: the template calls it useless and keeps it (tools/register/template.py:707)",
        ),
    )


def _rope_fusion(version: str) -> Row:
    path, flag = "kernels.rope_fusion", key("apply_rope_fusion")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        fused = job.kernels.rope_fusion
        why = "versions up to 1.8 refuse it with MLA (transformer_config.py:520 @1.6.0, :529 @1.8.0)"
        old = in_range(version, None, "1.8.99")
        require(not (fused and job.model.is_mla and old), path, why, f"{path}=false")
        if fused is not None:
            yield flag, fused

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(flag)} if view.has(flag) else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read)


def sparse_mode_row() -> Row:
    """Return the row of the sparse mode of fused attention."""
    return modern(same("kernels.sparse_mode", key("sparse_mode")))
