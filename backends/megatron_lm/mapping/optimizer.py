"""Rows for the optimizer: learning rates, weight decay, precision of its state, Muon, QK clipping."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from backends.megatron_lm.mapping.factories import BEFORE_0_18, came, chosen, valued, when_set
from launcher.job import Job, Value
from launcher.job.optimizer import MUON_MOMENTUM
from launcher.mapping.rows import Gap, NativeView, Row, computed, switch, switch_off


def optimizer() -> tuple[Row, ...]:
    """Return the rows of the optimizer, its learning rates, weight decay, Muon and QK clipping."""
    return (
        chosen("optimizer.type", "optimizer", {"adam": None, "sgd": "sgd", "muon": "muon"}, "adam", since="0.16"),
        chosen("optimizer.type", "optimizer", {"adam": None, "sgd": "sgd"}, "adam", until="0.15.9"),
        when_set("optimizer.lr", "lr"),
        valued("optimizer.min_lr", "min-lr", 0.0),
        valued("optimizer.weight_decay", "weight-decay", 0.01, note="Megatron's own default is 0.01."),
        valued("optimizer.adam_beta1", "adam-beta1", 0.9),
        valued("optimizer.adam_beta2", "adam-beta2", 0.999, note="Megatron's own default is 0.999."),
        valued("optimizer.adam_eps", "adam-eps", 1e-8, quiet=True),
        when_set("optimizer.sgd_momentum", "sgd-momentum"),
        valued("optimizer.clip_grad", "clip-grad", 1.0),
        switch("optimizer.precision_aware", "use-precision-aware-optimizer"),
        when_set("optimizer.main_grads_dtype", "main-grads-dtype"),
        when_set("optimizer.main_params_dtype", "main-params-dtype"),
        *_moments("fp32", "fp16", "bf16", "fp8", since="0.13"),
        *_moments("fp32", "fp16", "fp8", until="0.12.9"),
        *weight_decay_and_decoupled_rates(),
        *(replace(row, since="0.16", until=_UNTIL.get(row.fields[0])) for row in muon(0.9, "muon-use-nesterov")),
        switch("optimizer.muon_nesterov", "muon-nesterov", since="0.18"),
        when_set("optimizer.muon_coefficient_type", "muon-coefficient-type", since="0.17"),
        when_set("optimizer.muon_scalar_optimizer", "muon-scalar-optimizer", since="0.17"),
        *qk_clipping(),
    )


# Of the rows of Muon, what core 0.18 renamed.
_UNTIL = {"optimizer.muon_nesterov": BEFORE_0_18}


def _moments(*names: str, since: str | None = None, until: str | None = None) -> tuple[Row, ...]:
    same = {name: name for name in names}
    return (
        chosen("optimizer.exp_avg_dtype", "exp-avg-dtype", same, since=since, until=until),
        chosen("optimizer.exp_avg_sq_dtype", "exp-avg-sq-dtype", same, since=since, until=until),
    )


def weight_decay_and_decoupled_rates() -> tuple[Row, ...]:
    """Return the rows of the weight decay schedule and of the learning rate of embedding and output layer."""
    styles = {name: name for name in ("constant", "linear", "cosine")}
    return (
        chosen("optimizer.weight_decay_style", "weight-decay-incr-style", styles),
        when_set("optimizer.start_weight_decay", "start-weight-decay"),
        when_set("optimizer.end_weight_decay", "end-weight-decay"),
        when_set("optimizer.decoupled_lr", "decoupled-lr"),
        when_set("optimizer.decoupled_min_lr", "decoupled-min-lr"),
    )


def muon(parser_default: float, nesterov: str) -> tuple[Row, ...]:
    """Return the rows of Muon.

    Args:
        parser_default: momentum of the parser, read where the argument is absent.
        nesterov: switch of Nesterov momentum.
    """
    path, flag = "optimizer.muon_momentum", "muon-momentum"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        given = job.optimizer.muon_momentum
        if given is not None or job.optimizer.type == "muon":
            yield flag, MUON_MOMENTUM if given is None else given

    def read(view: NativeView) -> Mapping[str, Value]:
        muon = "muon" in str(view.peek("optimizer"))
        return {path: view.take(flag, parser_default)} if muon or view.has(flag) else {}

    note = f"Written with Muon: {MUON_MOMENTUM} unless set; backends' own defaults differ."
    return (
        switch("optimizer.decay_qk_layernorm", "apply-wd-to-qk-layernorm"),
        computed((path, "optimizer.type"), (flag,), emit, read, note=note),
        switch("optimizer.muon_nesterov", nesterov),
        when_set("optimizer.muon_ns_steps", "muon-num-ns-steps"),
        when_set("optimizer.muon_scale_mode", "muon-scale-mode"),
        when_set("optimizer.muon_extra_scale_factor", "muon-extra-scale-factor"),
        switch_off("optimizer.muon_split_qkv", "muon-no-split-qkv"),
        when_set("optimizer.muon_tp_mode", "muon-tp-mode"),
        when_set("optimizer.muon_matmul_precision", "muon-fp32-matmul-prec"),
    )


def qk_clipping() -> tuple[Row, ...]:
    """Return the rows of QK clipping."""
    since = "0.16"
    return (
        switch("optimizer.qk_clip", "qk-clip", since=since),
        when_set("optimizer.qk_clip_alpha", "qk-clip-alpha", since=since),
        when_set("optimizer.qk_clip_threshold", "qk-clip-threshold", since=since),
    )


MUON_FIELDS = tuple(
    f"optimizer.muon_{name}"
    for name in (
        "momentum",
        "nesterov",
        "ns_steps",
        "scale_mode",
        "extra_scale_factor",
        "split_qkv",
        "tp_mode",
        "matmul_precision",
    )
)


def _without_qk_clipping(why: str, *works: str) -> Mapping[str, Gap]:
    """Return the gaps of QK clipping; its numbers apply only where it is enabled."""
    numbers = Gap(why=why, works=works, matters=lambda job: bool(job.optimizer.qk_clip))
    return {
        "optimizer.qk_clip": Gap(why=why, neutral=(False,), works=works or ("optimizer.qk_clip=false",)),
        "optimizer.qk_clip_alpha": numbers,
        "optimizer.qk_clip_threshold": numbers,
    }


NO_QK_CLIPPING = _without_qk_clipping("attention weights are not shrunk")
CAME_LATER: Mapping[str, Gap] = {
    "optimizer.muon_coefficient_type": came("quintic", why="its coefficients are quintic before core {since}"),
    "optimizer.muon_scalar_optimizer": came("adam", why="the other weights are trained by Adam before core {since}"),
    **dict.fromkeys(MUON_FIELDS, came()),
    "optimizer.decay_qk_layernorm": came(False),
    **_without_qk_clipping(came().why),
}
