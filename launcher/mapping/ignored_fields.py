"""Detects fields of a job that its backend ignores: neither written, refused nor the backend's default."""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property, partial

from launcher.job import Job, Value, fields, value_at, with_values
from launcher.job.finding import Finding, Fix
from launcher.mapping.backend import Backend
from launcher.mapping.engine import read_back, translate
from launcher.mapping.native import NativeArgs
from launcher.mapping.rows import Row, active_rows

# Set by the launcher on every backend: nodes, devices, its own folders.
LAUNCHER_FIELDS = ("parallel.dp", "cluster.", "backend.", "imported.", "data.format", "name", "output_dir", "runtime")
# Taken from the model's files by backends that read them; rules report missing files.
MODEL_FILE_FIELDS = ("model.", "tokenizer.")
_EXPERT_FIELDS = frozenset(
    {
        "model.moe_intermediate_size",
        "model.shared_expert_intermediate_size",
        "model.shared_expert_gate",
        "model.first_k_dense_replace",
        "model.moe_layer_freq",
        "model.mlp_only_layers",
        "model.num_experts_per_tok",
        "model.norm_topk_prob",
        "model.scoring_func",
        "model.router_expert_bias",
        "model.n_group",
        "model.topk_group",
        "model.routed_scaling_factor",
    }
)
_MLA_FIELDS = ("model.q_lora_rank", "model.qk_nope_head_dim", "model.qk_rope_head_dim", "model.v_head_dim")
DATA_FIELDS = ("data.", "tokenizer.", "batch.packing")
_TOKENS = ("megatron", "mock", "sample")


class AppliedFields:
    """Which values of a job a backend version applies, by an argument or by default."""

    def __init__(self, job: Job, backend: Backend, version: str, written: Mapping[str, Value]) -> None:
        self.job, self.table = job, backend.table(version)
        self._read = partial(read_back, written, backend, version)
        self.rows: dict[str, list[Row]] = {}
        for row in active_rows(self.table, version):
            for path in row.fields[: 1 if row.derived else None]:
                self.rows.setdefault(path, []).append(row)

    @cached_property
    def read(self) -> Job:
        """The job read back from the written arguments."""
        return self._read().job

    def is_applied(self, path: str) -> bool:
        """Return whether the backend applies the value of a field, by an argument or by default."""
        value = value_at(self.job, path)
        if value is None or path.startswith(LAUNCHER_FIELDS) or value == fields()[path].default:
            return True
        gap = self.table.unsupported.get(path)
        if gap is not None:
            return value in gap.neutral or (gap.matters is not None and not gap.matters(self.job))
        if path in self.table.irrelevant:
            return False
        # A row that applies and writes nothing means that the value is the backend's default.
        applies = any(row.when is None or row.when(self.job) for row in self.rows.get(path, ()))
        return applies or bool(value_at(self.read, path) == value)


def inapplicable(job: Job, path: str) -> str:
    """Return why no backend reads a value given the other values of a job; empty: it should be read."""
    if (
        path.startswith(("moe.", "parallel.ep", "parallel.etp")) or path in _EXPERT_FIELDS
    ) and not job.model.num_experts:
        return "the model has no experts"
    if path.startswith("parallel.cp_") and job.parallel.cp == 1:
        return "sequences are not split"
    if path == "data.split" and not any(float(share) for share in (job.data.split or "").split(",")[1:]):
        return "all data are used for training"
    if path.startswith("tokenizer.") and job.data.format in _TOKENS:
        return "the data are tokens already"
    if path == "model.full_attention_layers" and job.model.sliding_window is None:
        return "no layer has an attention window"
    if path.startswith("model.mtp_") and not job.model.num_nextn_predict_layers:
        return "the model has no multi-token prediction"
    if path.startswith("model.rope_scaling.") and job.model.rope_scaling.type is None:
        return "RoPE is not scaled"
    if path in _MLA_FIELDS and job.model.kv_lora_rank is None:
        return "the model has no multi-head latent attention"
    return ""


def ignored_field_findings(
    job: Job, backend: Backend, version: str, native: NativeArgs, reported: set[str]
) -> Iterator[Finding]:
    """Yield a finding for every value that the backend ignores: a warning where it affects training.

    Args:
        reported: fields that other findings name.
    """
    applied = AppliedFields(job, backend, version, {arg.flag: arg.value for arg in native})
    for path, info in fields().items():
        if path in reported or path in applied.table.irrelevant or path in applied.table.unsupported:
            continue
        if path.startswith(MODEL_FILE_FIELDS) and backend.reads_hub:
            continue
        if path.startswith(DATA_FIELDS) and "data.format" in reported:
            continue
        if not applied.is_applied(path) and not inapplicable(job, path) and not _matters(job, path, backend, version):
            message = f"{backend.title} {version} ignores it, given the other values of this job"
            yield _finding(backend, message, (path,), severity="warning" if info.meta.affects_training else "change")
    if backend.reads_hub and job.imported.backend is not None and not (job.model.path or job.model.hub_id):
        yield from _model_field_findings(applied, backend, version, reported)


def _model_field_findings(
    applied: AppliedFields, backend: Backend, version: str, reported: set[str]
) -> Iterator[Finding]:
    """Yield a warning where a script sets model fields, the backend reads the model's files, and none are named."""
    paths = [path for path in fields() if path.startswith(MODEL_FILE_FIELDS) and path not in reported]
    lost = [path for path in paths if not applied.is_applied(path) and not inapplicable(applied.job, path)]
    if lost:
        message = f"they describe the model; {backend.title} {version} reads this from the model's files"
        fixes = (Fix(overrides=(name,)) for name in model_files(applied.job))
        yield _finding(backend, message, tuple(lost), *fixes)


def model_folder(job: Job) -> str:
    """Return the tokenizer's directory, which in Hugging Face's layout also holds the model; empty: none."""
    path = job.tokenizer.path or ""
    return "" if path.endswith((".model", ".json", ".txt", ".tiktoken", ".vocab")) else path


def model_files(job: Job) -> tuple[str, ...]:
    """Return overrides that name the model's files: by the tokenizer's directory or hub name, or as placeholders."""
    folder = model_folder(job)
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", folder):
        return (f"model.hub_id={folder}",)
    return (f"model.path={folder}",) if folder else ("model.path=DIR", "model.hub_id=OWNER/NAME")


def _finding(backend: Backend, message: str, paths: tuple[str, ...], *fixes: Fix, severity: str = "warning") -> Finding:
    return Finding(
        rule="MAP-UNREAD",
        severity=severity,
        message=message,
        fields=paths,
        fixes=fixes,
        source=f"mapping table of {backend.name}",
    )


def _matters(job: Job, path: str, backend: Backend, version: str) -> bool:
    """Return whether the translation differs with the field's default or with another value; unknown counts as yes."""
    reported, value = translate(job, backend, version), value_at(job, path)
    refused = {field for finding in reported.findings for field in finding.fields}
    if any(
        path in row.fields and not refused.isdisjoint(row.fields)
        for row in active_rows(backend.table(version), version)
    ):
        return True  # what the row would write for it is not known before the other field is expressible
    others = [fields()[path].default]
    if isinstance(value, (int, float)):
        others.append(not value if isinstance(value, bool) else value * 2 + 1)
    return any(translate(with_values(job, {path: other}), backend, version) != reported for other in others)
