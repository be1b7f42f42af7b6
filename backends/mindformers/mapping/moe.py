"""Rows of mixture of experts: shape, routing, balance, dispatch."""

from collections.abc import Iterable, Mapping

from backends.mindformers.mapping.batch_arithmetic import micro_batches
from backends.mindformers.mapping.support import (
    EXPERTS,
    KIND,
    aliased,
    drop,
    first_written,
    from_directory,
    is_like_deepseek,
    is_moe,
    key,
    require,
    written_class,
)
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, same


def _experts() -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        # The name under which the config class has its default; both names at once are rejected.
        yield EXPERTS[1 if is_like_deepseek(job) else 0], job.model.num_experts

    def read(view: NativeView) -> Mapping[str, Value]:
        given = first_written(view, EXPERTS)
        # Without a class the given name must be kept: config.json also has one of them.
        return {"model.num_experts": view.take(given)} if given and view.peek(KIND) is not None else {}

    return Row(fields=("model.num_experts",), flags=EXPERTS, emit=emit, read=read, when=is_moe)


def _shared_experts() -> Row:
    count, width = (key("n_shared_experts"), key("shared_expert_num")), key("moe_shared_expert_intermediate_size")
    path = "model.shared_expert_intermediate_size"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        total, each = job.model.shared_expert_intermediate_size, job.model.moe_intermediate_size
        deepseek = is_like_deepseek(job)
        require(total is None or deepseek, path, "only its DeepSeek-V3 class builds a shared expert", f"{path}=null")
        if not deepseek or (total is None and from_directory(job)):
            return
        if total is None or (each and total % each == 0):
            yield count[0], 0 if total is None or not each else total // each
        else:
            yield count[0], 1
            yield width, total

    def read(view: NativeView) -> Mapping[str, Value]:
        given = first_written(view, count)
        if given is None and written_class(view) == "deepseek_v3" and not view.has(width):
            return {path: int(view.peek(key("moe_intermediate_size"), 2048))}
        if view.has(width):
            if given is not None:
                view.take(given)
            return {path: view.take(width)}
        each = first_written(view, (key("moe_intermediate_size"), key("moe_ffn_hidden_size"))) or ""
        size = view.peek(each) or view.peek(key("moe_intermediate_size")) or view.peek(key("moe_ffn_hidden_size"))
        if given is None or (view.peek(given) and not isinstance(size, int)):
            return {}
        number = view.take(given)
        return {path: number * size} if number else {}

    return Row(
        fields=(path, "model.moe_intermediate_size"),
        flags=(*count, width),
        emit=emit,
        read=read,
        when=is_moe,
        note="counted in routed experts' widths; 0 is written, because DeepseekV3Config's own default is 1",
    )


def _dense_layers() -> Row:
    first, every = key("first_k_dense_replace"), key("moe_layer_freq")
    paths = ("model.first_k_dense_replace", "model.moe_layer_freq")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        model = job.model
        if is_like_deepseek(job):
            why = "it does not combine the two (transformer_config.py:2540 @2.1.0)"
            require(not model.first_k_dense_replace or model.moe_layer_freq == 1, paths[1], why, f"{paths[1]}=1")
            yield first, model.first_k_dense_replace
            yield every, model.moe_layer_freq
            return
        why = "its Qwen3-MoE class makes every layer an MoE layer (modeling_qwen3_moe_train.py:49 @2.1.0)"
        require(model.first_k_dense_replace == 0, paths[0], why, f"{paths[0]}=0")
        require(model.moe_layer_freq == 1, paths[1], why, f"{paths[1]}=1")

    def read(view: NativeView) -> Mapping[str, Value]:
        found: dict[str, Value] = {paths[0]: view.take(first)} if view.has(first) else {}
        if view.has(every) and isinstance(view.peek(every), int):
            found[paths[1]] = view.take(every)
        return found

    note = "written for DeepSeek-V3, whose config class defaults to 3 dense layers"
    return Row(fields=paths, flags=(first, every), emit=emit, read=read, when=is_moe, note=note)


def _score_function(version: str) -> Row:
    names = tuple(key(name) for name in ("moe_router_score_function", "scoring_func", "use_gating_sigmoid"))
    # 2.1 deletes scoring_func from DeepSeek's config and registers the other name; 1.6 has its default there.
    written = names[1] if version == "1.6.0" else names[0]

    def read(view: NativeView) -> Mapping[str, Value]:
        given = first_written(view, names)
        if given is None:
            return {}
        value = view.take(given)
        return {"model.scoring_func": value if isinstance(value, str) else ("sigmoid" if value else "softmax")}

    return Row(
        fields=("model.scoring_func",),
        flags=names,
        emit=lambda job: ((written, job.model.scoring_func),),
        read=read,
        when=is_moe,
        note="scores of all experts first, then the choice: norm_topk_prob sets whether the chosen ones add up to one",
    )


def _pre_softmax() -> Row:
    flag = key("moe_router_pre_softmax")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.num_experts_per_tok == 1 and job.model.scoring_func == "softmax":
            yield flag, True

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.peek(key("num_experts_per_tok")) == 1:
            drop(view, {flag: True})
        return {}

    note = "the router scores before it chooses whatever this is (router.py: routing); needed only to pass a check"
    return Row(fields=(), flags=(flag,), emit=emit, read=read, when=is_moe, derived=True, note=note)


def _groups(version: str) -> Row:
    paths = ("model.n_group", "model.topk_group")
    flags = (key("n_group"), key("topk_group"))
    aliases = (key("moe_router_num_groups"), key("moe_router_group_topk"))

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        model = job.model
        groups, chosen = model.n_group, model.topk_group
        if version == "1.6.0":
            why = "its router has no groups and reads past n_group (training_graph/transformer/moe/router.py @1.6.0)"
            require((groups or 1) == 1, paths[0], why, f"{paths[0]}=1", "backend.version=2.1.0")
        deepseek = is_like_deepseek(job)
        if groups is not None or deepseek:
            yield (flags if deepseek else aliases)[0], groups or 1
        if chosen is not None or deepseek:
            yield (flags if deepseek else aliases)[1], chosen or 1

    def read(view: NativeView) -> Mapping[str, Value]:
        found: dict[str, Value] = {}
        for path, names in zip(paths, zip(flags, aliases, strict=True), strict=True):
            given = first_written(view, names)
            if given is not None:
                found[path] = view.take(given)
        return {path: count for path, count in found.items() if count}

    note = "1 where the job has none: DeepseekV3Config's own defaults are 8 and 4"
    return Row(fields=paths, flags=(*flags, *aliases), emit=emit, read=read, when=is_moe, note=note)


def _expert_bias(version: str) -> Row:
    bias = tuple(key(name) for name in ("moe_router_enable_expert_bias", "balance_via_topk_bias"))
    rate = tuple(key(name) for name in ("moe_router_bias_update_rate", "topk_bias_update_rate"))
    callback = "callbacks.TopkBiasBalanceCallback.gradient_accumulation_steps"
    kind = "callbacks.TopkBiasBalanceCallback.type"
    paths = ("model.router_expert_bias", "moe.bias_update_rate")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        on, deepseek = job.model.router_expert_bias, is_like_deepseek(job)
        require(not on or deepseek, paths[0], "only its DeepSeek-V3 class updates the bias", f"{paths[0]}=false")
        why = "it needs sigmoid scores (transformer_config.py:2475 @2.1.0)"
        require(not on or job.model.scoring_func == "sigmoid", paths[0], why, "model.scoring_func=sigmoid")
        if (on or deepseek) and (on or not from_directory(job)):
            yield bias[0], on
        if on or (job.moe.bias_update_rate is not None and from_directory(job)):
            yield rate[0], 0.001 if job.moe.bias_update_rate is None else job.moe.bias_update_rate

    def read(view: NativeView) -> Mapping[str, Value]:
        found: dict[str, Value] = {}
        given = first_written(view, bias)
        if given is not None:
            found[paths[0]] = view.take(given)
        given = first_written(view, rate)
        if given is not None:
            found[paths[1]] = view.take(given)
        if written_class(view) == "deepseek_v3" or found.get(paths[0]):
            drop(view, {kind: "TopkBiasBalanceCallback"})
        return found

    note = "without its callback the bias is never updated; off is written too, because DeepSeek's class has it on"
    return Row(fields=paths, flags=(*bias, *rate, kind, callback), emit=emit, read=read, when=is_moe, note=note)


def bias_callback() -> Row:
    """Return the row of the callback that updates the experts' bias after every step."""
    flag = "callbacks.TopkBiasBalanceCallback.gradient_accumulation_steps"
    field = "runner_config.gradient_accumulation_steps"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        # Pipeline micro-batches are counted by the model itself, accumulation steps are not (gpt_model.py:639 @2.1.0).
        yield flag, (micro_batches(job) or 1) if job.parallel.pp == 1 else 1

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.has(flag) and view.peek(flag) == view.peek(field, 1):
            view.take(flag)
        return {}

    return Row(
        fields=("model.router_expert_bias",),
        flags=(flag,),
        emit=emit,
        read=read,
        when=lambda job: job.model.is_moe and job.model.router_expert_bias,
        derived=True,
    )


def _balance(version: str) -> Row:
    kind, coeff = key("moe_router_load_balancing_type"), key("moe_aux_loss_coeff")
    types, factors = key("aux_loss_types"), key("aux_loss_factors")
    paths = ("moe.load_balancing_type", "moe.aux_loss_coeff")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted, weight = job.moe.load_balancing_type, job.moe.aux_loss_coeff
        weight = 0.0 if wanted == "none" else weight
        require(wanted != "sinkhorn", paths[0], "its router has no sinkhorn", f"{paths[0]}=aux_loss")
        whole = wanted != "seq_aux_loss" or job.batch.micro_batch_size == 1 or weight == 0
        why = "its balancing loss covers a whole micro-batch, which is one sequence only with micro_batch_size 1"
        require(whole, paths[0], why, "batch.micro_batch_size=1", f"{paths[0]}=aux_loss")
        if version == "1.6.0":
            require(wanted != "global_aux_loss" or weight == 0, paths[0], "version 1.6 has no global balancing loss")
            split = job.parallel.tp * job.parallel.cp
            why = f"version 1.6 balances each of the {split} parts of a sequence (tp x cp) for itself (router.py:222)"
            require(split == 1 or weight == 0, paths[0], why, "backend.version=2.1.0", "moe.aux_loss_coeff=0.0")
            yield types, ("expert",)
            yield factors, (weight,)
            return
        yield kind, "gbs_aux_loss" if wanted == "global_aux_loss" else "seq_aux_loss"
        yield coeff, weight

    def read(view: NativeView) -> Mapping[str, Value]:
        found: dict[str, Value] = {}
        if tuple(view.peek(types) or ()) == ("expert",) and view.has(factors):
            view.take(types)
            found[paths[1]] = view.take(factors)[0]
        if view.has(coeff):
            found[paths[1]] = view.take(coeff)
        single = view.peek("runner_config.batch_size", 1) == 1
        names = {"gbs_aux_loss": "global_aux_loss", "seq_aux_loss": "seq_aux_loss" if single else "aux_loss"}
        if version != "1.6.0" and view.peek(kind) in names:
            found[paths[0]] = names[view.take(kind)]
        return found

    return Row(
        fields=paths,
        flags=(kind, coeff) if version != "1.6.0" else (types, factors),
        emit=emit,
        read=read,
        when=is_moe,
        note="seq_aux_loss covers one micro-batch over tp: Megatron's aux_loss, and its seq_aux_loss with "
        "micro_batch_size 1; the coefficient means the same (router.py: alpha E sum f P)",
    )


def _router_dtype() -> Row:
    # Not router_dense_type: DeepSeek's converter drops it with a warning (config_converter_deepseek_v3.py @2.1.0).
    flags = (key("moe_router_dtype"), key("router_dense_type"))
    compute = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted = job.moe.router_dtype
        require(wanted != "fp64", "moe.router_dtype", "Ascend multiplies no fp64 matrices", "moe.router_dtype=fp32")
        yield flags[0], "float32" if wanted == "fp32" else compute[job.precision.dtype]

    def read(view: NativeView) -> Mapping[str, Value]:
        given = first_written(view, flags)
        if given is None:
            return {}
        return {"moe.router_dtype": "fp32" if view.take(given) in ("float32", "fp32") else "model"}

    return Row(fields=("moe.router_dtype",), flags=flags, emit=emit, read=read, when=is_moe)


def _dispatcher(version: str) -> Row:
    flag = key("moe_token_dispatcher_type")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        why = "its token dispatcher is all-to-all (training_graph/transformer/moe/ffn.py:96 @2.1.0)"
        path = "moe.token_dispatcher_type"
        require(job.moe.token_dispatcher_type == "alltoall", path, why, f"{path}=alltoall")
        if version != "1.6.0":
            yield flag, "alltoall"

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.peek(flag) != "alltoall" or not view.has(flag):
            return {}
        return {"moe.token_dispatcher_type": view.take(flag)}

    flags = (flag,) if version != "1.6.0" else ()
    return Row(fields=("moe.token_dispatcher_type",), flags=flags, emit=emit, read=read, when=is_moe)


def _router_fusion() -> Row:
    path, flags = "moe.router_fusion", (key("use_fused_ops_topkrouter"),)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.moe.router_fusion is not None:
            yield flags[0], job.moe.router_fusion

    def read(view: NativeView) -> Mapping[str, Value]:
        given = first_written(view, flags)
        return {path: view.take(given)} if given is not None else {}

    return Row(fields=(path,), flags=flags, emit=emit, read=read, when=is_moe)


def _capacity() -> Row:
    path = "moe.capacity_factor"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        why = "its mcore router and experts read past it (training_graph/transformer/moe): no token is dropped"
        require(job.moe.capacity_factor is None, path, why)
        return ()

    return Row(fields=(path,), flags=(), emit=emit, note="only the older models drop tokens")


def _grouped() -> Row:
    path, flag = "moe.grouped_gemm", key("moe_grouped_gemm")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        why = (
            "its experts are one grouped matrix product (training_graph/base_models/gpt/moe_module_specs.py:38 @1.8.0)"
        )
        require(job.moe.grouped_gemm is not False, path, why, f"{path}=true")
        yield flag, True

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: bool(view.take(flag))} if view.has(flag) else {}

    note = "always written: without it training raises NotImplementedError"
    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, when=is_moe, note=note)


def moe_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of mixture of experts."""
    return (
        _experts(),
        aliased(
            "model.num_experts_per_tok", "num_experts_per_tok", "moe_router_topk", "num_experts_chosen", when=is_moe
        ),
        _shared_experts(),
        aliased("model.moe_intermediate_size", "moe_intermediate_size", "moe_ffn_hidden_size", when=is_moe),
        _shared_gate(),
        _dense_layers(),
        same("model.norm_topk_prob", key("norm_topk_prob"), when=is_moe),
        _score_function(version),
        _pre_softmax(),
        _groups(version),
        aliased(
            "model.routed_scaling_factor",
            "routed_scaling_factor",
            "moe_router_topk_scaling_factor",
            default=1.0,
            when=is_moe,
            note="1 where the job has none: TransformerConfig's default null cannot be multiplied, DeepSeek's is 2.5",
        ),
        _expert_bias(version),
        _balance(version),
        _router_dtype(),
        _dispatcher(version),
        _grouped(),
        same("moe.permute_fusion", key("moe_permute_fusion"), when=is_moe),
        same("moe.shared_expert_overlap", key("moe_shared_expert_overlap"), when=is_moe),
        _router_fusion(),
        _capacity(),
    )


def _shared_gate() -> Row:
    flag = key("use_shared_expert_gating")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.shared_expert_gate:
            yield flag, True

    return Row(
        fields=("model.shared_expert_gate",),
        flags=(flag,),
        emit=emit,
        read=lambda view: {"model.shared_expert_gate": bool(view.take(flag))} if view.has(flag) else {},
        when=is_moe,
    )


def forced_balance_row() -> Row:
    """Return the row of routing that is balanced by force, for measurements."""
    return same("moe.force_load_balancing", key("moe_router_force_expert_balance"), since="1.7")
