"""Trains the model with transformers and AdamW of torch, which share no code with Megatron.

python -m launcher.parity.reference OPTIONS.json
"""

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from launcher.job import Job, fields, value_at
from launcher.parity import reference_mtp
from launcher.parity.low_rank import LowRank, add_factors, save_factors
from launcher.parity.reference_precision import LossScale, MainParameters
from launcher.parity.reference_routers import Routers, Routing
from launcher.rehearse.cpu import routing, tracer
from launcher.rehearse.cpu.recorder import record
from launcher.tokenized import IGNORED

# Sections whose values change the computation; those of `model` are in config.json, which transformers reads.
_SECTIONS = frozenset({"schedule", "optimizer", "moe", "precision", "task", "lora"})
_COMPUTED = frozenset(
    {
        *("schedule.train_iters", "schedule.lr_decay_iters", "schedule.lr_warmup_iters", "schedule.lr_warmup_fraction"),
        *("optimizer.lr", "optimizer.min_lr", "optimizer.weight_decay", "optimizer.clip_grad"),
        *("optimizer.adam_beta1", "optimizer.adam_beta2", "optimizer.adam_eps"),
        *("schedule.lr_warmup_init", "moe.aux_loss_coeff", "moe.z_loss_coeff", "moe.bias_update_rate"),
        *("moe.load_balancing_type", "moe.token_dispatcher_type", "moe.capacity_factor", "moe.token_drop_policy"),
        *("precision.dtype", "precision.grad_reduce_in_fp32", "schedule.lr_decay_style"),
        *("precision.initial_loss_scale", "precision.loss_scale_window", "precision.loss_scale"),
        *("precision.min_loss_scale", "precision.loss_scale_hysteresis"),
        *("lora.rank", "lora.alpha", "lora.target_modules", "lora.rslora"),
    }
)
_CHOICES: Mapping[str, tuple[object, ...]] = {
    "precision.dtype": ("fp32", "bf16", "fp16"),
    "schedule.lr_decay_style": ("constant", "linear", "cosine"),
}
_BALANCING = ("aux_loss", "seq_aux_loss")
# Values that are computed, or compute the same in fp32.
_SAME: Mapping[str, tuple[object, ...]] = {
    "precision.attention_softmax_in_fp32": (True, False),
    "precision.calculate_per_token_loss": (True, False),
    "task.type": ("pretrain", "sft"),
    "schedule.epochs": (None,),
    "lora.dropout": (0.0,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the reference trains.

    Attributes:
        module: the program that reads them.
        model: directory with config.json and weights.
        out: directory for the trained weights.
        samples: token numbers of each sample, in the order of the training.
        labels: of each sample, which of its tokens are predicted: their numbers, and -100 for the others; None: all but
            the first.
        per_token: whether the loss is the mean over the predicted tokens of an iteration instead of its micro-batches.
        iterations, global_batch_size, micro_batch_size: of the job.
        lr, min_lr, decay, warmup, decay_iters: learning-rate schedule; warm-up and decay in iterations.
        weight_decay, betas, eps, clip_grad: AdamW and the largest gradient norm (0: none).
        routing: losses, bias and capacity of the routers.
        warmup_init: learning rate at the first step of the warm-up.
        mtp_scale: weight of the multi-token prediction's loss.
        lora: the adapter that is trained; None: all parameters are.
        dtype: fp32, or bf16 or fp16 with fp32 copies of the weights.
        sums_in_fp32: whether gradients of micro-batches are added in fp32, or in `dtype`.
        scale: of the loss, in fp16; None: there is none.
    """

    module: ClassVar[str] = "launcher.parity.reference"
    model: str
    out: str
    samples: Sequence[Sequence[int]]
    iterations: int
    global_batch_size: int
    micro_batch_size: int
    lr: float
    min_lr: float
    decay: str
    warmup: float
    decay_iters: int
    weight_decay: float
    betas: tuple[float, float]
    eps: float
    clip_grad: float
    routing: Routing = Routing()
    warmup_init: float = 0.0
    mtp_scale: float = 0.0
    labels: Sequence[Sequence[int]] | None = None
    per_token: bool = False
    lora: LowRank | None = None
    dtype: str = "fp32"
    sums_in_fp32: bool = True
    scale: LossScale | None = None

    def to_json(self) -> str:
        """Return the options as JSON."""
        return json.dumps(asdict(self))


def decoded(read: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `Options` of what `to_json` wrote."""
    lora = None if read["lora"] is None else LowRank(**read["lora"])
    scale = None if read["scale"] is None else LossScale(**read["scale"])
    routing = Routing(**read["routing"])
    return {**read, "betas": tuple(read["betas"]), "routing": routing, "lora": lora, "scale": scale}


def options_of(
    job: Job,
    model: Path,
    out: Path,
    samples: Sequence[Sequence[int]],
    labels: Sequence[Sequence[int]] | None = None,
) -> Options:
    """Return the reference's options for a small job of which `unsupported` yields nothing."""
    schedule, optimizer = job.schedule, job.optimizer
    decay = schedule.lr_decay_iters or schedule.train_iters or 0
    return Options(
        model=str(model),
        out=str(out),
        samples=samples,
        labels=labels,
        per_token=job.precision.calculate_per_token_loss,
        iterations=schedule.train_iters or 0,
        global_batch_size=job.batch.global_batch_size or 1,
        micro_batch_size=job.batch.micro_batch_size,
        lr=optimizer.lr or 0.0,
        min_lr=optimizer.min_lr,
        decay=schedule.lr_decay_style,
        # megatron/training/training.py, get_optimizer_param_scheduler: the fraction is one of the decay, not rounded.
        warmup=schedule.lr_warmup_iters or (schedule.lr_warmup_fraction or 0.0) * decay,
        decay_iters=decay,
        weight_decay=optimizer.weight_decay,
        betas=(optimizer.adam_beta1, optimizer.adam_beta2),
        eps=optimizer.adam_eps,
        clip_grad=optimizer.clip_grad,
        routing=_routing(job) if job.model.is_moe else Routing(),
        warmup_init=schedule.lr_warmup_init or 0.0,
        mtp_scale=_mtp_scale(job),
        dtype=str(job.precision.dtype),
        sums_in_fp32=job.precision.dtype != "fp16" or bool(job.precision.grad_reduce_in_fp32),
        scale=_scale(job),
    )


def _scale(job: Job) -> LossScale | None:
    precision = job.precision
    if precision.dtype != "fp16":
        return None
    if precision.loss_scale is not None:
        return LossScale(value=precision.loss_scale, dynamic=False)
    own = LossScale()
    return LossScale(
        value=precision.initial_loss_scale or own.value,
        window=precision.loss_scale_window or own.window,
        hysteresis=precision.loss_scale_hysteresis or own.hysteresis,
        least=own.least if precision.min_loss_scale is None else precision.min_loss_scale,
    )


def _routing(job: Job) -> Routing:
    moe = job.moe
    return Routing(
        balancing=moe.aux_loss_coeff if moe.load_balancing_type in _BALANCING else 0.0,
        in_sequence=moe.load_balancing_type == "seq_aux_loss",
        z=moe.z_loss_coeff or 0.0,
        bias_step=_bias_update_rate(job),
        capacity=moe.capacity_factor,
        # megatron/core/transformer/transformer_config.py, moe_token_drop_policy
        policy=moe.token_drop_policy or "probs",
    )


def _mtp_scale(job: Job) -> float:
    # megatron/core/transformer/transformer_config.py, mtp_loss_scaling_factor
    return 0.1 if job.model.mtp_loss_scaling_factor is None else job.model.mtp_loss_scaling_factor


def _bias_update_rate(job: Job) -> float:
    if not job.model.router_expert_bias:
        return 0.0
    # megatron/core/transformer/transformer_config.py, moe_router_bias_update_rate
    return 1e-3 if job.moe.bias_update_rate is None else job.moe.bias_update_rate


def unsupported(job: Job, computed: frozenset[str] = frozenset()) -> Iterator[tuple[str, object, str]]:
    """Yield every value that changes training and that the reference does not compute, and an override without it.

    Args:
        computed: fields that the loss of the job's task takes into account.
    """
    for path, info in fields().items():
        section, value = path.partition(".")[0], value_at(job, path)
        if section not in _SECTIONS or not info.meta.affects_training or path in _COMPUTED | computed:
            continue
        if value != info.default and value not in _SAME.get(path, ()):
            yield path, value, f"{path}={'null' if info.default is None else info.default}"
    for path, choices in _CHOICES.items():
        if value_at(job, path) not in choices:
            yield path, value_at(job, path), f"{path}={choices[0]}"
    for name, value in job.backend.args.items():
        yield f"backend.args.{name}", value, f"without backend.args.{name}"
    yield from _unsupported_together(job)


def _unsupported_together(job: Job) -> Iterator[tuple[str, object, str]]:
    """Yield values that the reference computes, but not beside another one."""
    moe, model = job.moe, job.model
    if job.precision.dtype == "fp16":
        # Megatron-core divides the sums of the tokens' gradients after the backward pass: they overflow earlier.
        if job.precision.calculate_per_token_loss:
            path = "precision.calculate_per_token_loss"
            yield path, True, f"{path}=false"
        if job.precision.loss_scale_factor not in (None, 2):  # Megatron-core doubles the scale
            yield "precision.loss_scale_factor", job.precision.loss_scale_factor, "precision.loss_scale_factor=2"
        if job.task.type == "dpo":
            yield "precision.dtype", "fp16", "precision.dtype=fp32"
    if job.precision.dtype in ("bf16", "fp16"):
        # Which products of routers, of a further layer and of adapters are in fp32 differs between backends.
        for path, value, without in (
            ("model.model_type", model.model_type if model.is_moe else None, "precision.dtype=fp32"),
            ("model.num_nextn_predict_layers", model.num_nextn_predict_layers, "precision.dtype=fp32"),
            ("lora.rank", job.lora.rank, "precision.dtype=fp32"),
        ):
            if value:
                yield path, f"{value} in {job.precision.dtype}", without
    if model.num_nextn_predict_layers:
        path = "model.num_nextn_predict_layers"
        # Labels and padding of conversations would have to be shifted with the tokens.
        tuned = job.task.type != "pretrain"
        if tuned or model.num_nextn_predict_layers > 1 or not reference_mtp.knows(model.model_type):
            yield path, model.num_nextn_predict_layers, f"{path}=0"
        elif job.precision.calculate_per_token_loss:
            # Megatron-core divides that loss by the number of the next token's predictions, one more a sequence.
            yield path, model.num_nextn_predict_layers, "precision.calculate_per_token_loss=false"
    if not model.is_moe:
        return
    if moe.aux_loss_coeff and moe.load_balancing_type not in (*_BALANCING, "none"):
        yield "moe.load_balancing_type", moe.load_balancing_type, "moe.aux_loss_coeff=0"
    if job.precision.calculate_per_token_loss and (moe.aux_loss_coeff or moe.z_loss_coeff):
        # Megatron-core weighs the router's losses with all tokens of a micro-batch, the last ones of samples too, which
        # predict nothing (megatron/core/transformer/moe/router.py, attach_and_log_load_balancing_loss).
        path = "precision.calculate_per_token_loss"
        yield path, True, f"{path}=false"
    if moe.capacity_factor is not None:
        if model.router_expert_bias or job.task.type != "pretrain":
            yield "moe.capacity_factor", moe.capacity_factor, "moe.capacity_factor=null"
        for name in ("tp", "cp"):  # the capacity is then that of a rank's tokens
            size = getattr(job.parallel, name)
            if size > 1:
                yield f"parallel.{name}", size, f"parallel.{name}=1"


def rate(options: Options, iteration: int) -> float:
    """Return the learning rate of an iteration, counted from 0.

    Source: megatron/core/optimizer_param_scheduler.py, OptimizerParamScheduler.get_lr.
    """
    if options.warmup and iteration <= options.warmup:
        return options.warmup_init + (options.lr - options.warmup_init) * iteration / options.warmup
    if options.decay == "constant":
        return options.lr
    if iteration > options.decay_iters:
        return options.min_lr
    ratio = (iteration - options.warmup) / max(1, options.decay_iters - options.warmup)
    share = 1.0 - ratio if options.decay == "linear" else 0.5 * (math.cos(math.pi * ratio) + 1.0)
    return options.min_lr + share * (options.lr - options.min_lr)


def _formats(torch: Any) -> Mapping[str, Any]:
    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


Gradients = Callable[[Any, Any, Options, int], tuple[float, float | None]]
"""Adds the gradients of a global batch (torch, model, options, iteration from 0); returns its loss as it is trained,
and as a mean over predicted tokens, if there is one."""


def train(options: Options, gradients: Gradients | None = None) -> None:
    """Train and record every iteration.

    Args:
        gradients: adds the gradients of a global batch; None: of the loss of the next token.
    """
    tracer.install()
    routing.install()
    torch, model, mtp = loaded(options)
    factors = add_factors(model, options.lora) if options.lora is not None else {}
    tracer.watch(model)
    routers = Routers(torch, model, options.routing)
    add_gradients = gradients or partial(next_token_gradients, mtp=mtp, routers=routers)
    main = MainParameters(torch, model, sums_in_fp32=options.sums_in_fp32)
    optimizer = _optimizer(torch, main, options)
    updates = 0
    for iteration in range(options.iterations):
        optimizer.zero_grad()
        loss, token_loss = add_gradients(torch, model, options, iteration)
        norm = None
        finite = main.gather(None if options.scale is None else options.scale.value)
        if finite:
            norm = _clipped(torch, main, options.clip_grad)
            for group in optimizer.param_groups:
                # megatron/training/training.py, train_step: the schedule advances with successful updates.
                group["lr"] = rate(options, updates)
            optimizer.step()
            main.write_back()
            updates += 1
        routers.end_iteration()
        if options.scale is not None:
            options = replace(options, scale=options.scale.update(not finite))
        record(iteration + 1, loss, norm, token_loss=token_loss, skipped=not finite)
        if iteration + 1 == options.iterations:
            if options.lora is None:
                model.save_pretrained(options.out)
            else:
                save_factors(factors, options.lora, Path(options.out))
        said = "skipped" if norm is None else f"grad norm {norm:.5f}"
        print(f"iteration {iteration + 1}/{options.iterations} | loss {loss:.6f} | {said}", flush=True)


def loaded(options: Options) -> tuple[Any, Any, Any]:
    """Return torch, the model in its number format, and its layer of multi-token prediction or None."""
    import torch
    import transformers

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    name = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
    # "eager": attention as it is written, softmax(QK^T)V, without a fused kernel.
    given = {name: _formats(torch)[options.dtype]}
    model, mtp = reference_mtp.load_with_mtp(transformers, torch, options.model, attn_implementation="eager", **given)
    model.train()
    return torch, model, mtp


def _optimizer(torch: Any, main: MainParameters, options: Options) -> Any:
    """Return AdamW that decays matrices.

    Megatron-core decays neither biases nor vectors (megatron/core/optimizer/__init__.py, _get_param_groups).
    """
    matrices = [parameter for parameter in main if parameter.dim() > 1]
    vectors = [parameter for parameter in main if parameter.dim() <= 1]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": options.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        lr=options.lr,
        betas=options.betas,
        eps=options.eps,
        foreach=False,
    )


def _clipped(torch: Any, main: MainParameters, largest: float) -> float:
    """Clip the gradients to a norm, if it is not 0, and return the norm that they had."""
    parameters = [parameter for parameter in main if parameter.grad is not None]
    norm: float = torch.sqrt(sum((parameter.grad.double() ** 2).sum() for parameter in parameters)).item()
    if largest > 0 and norm > largest:
        for parameter in parameters:
            parameter.grad.mul_(largest / (norm + 1e-6))
    return norm


def next_token_gradients(
    torch: Any, model: Any, options: Options, iteration: int, *, mtp: Any, routers: Routers
) -> tuple[float, float]:
    """Add the gradients of one global batch, micro-batch by micro-batch.

    Args:
        mtp: layer of multi-token prediction; None: there is none.
        routers: of the model.

    Returns:
        Its loss as it is trained, and its mean loss per predicted token.
    """
    first, size = iteration * options.global_batch_size, options.micro_batch_size
    starts = range(first, first + options.global_batch_size, size)
    batches = [padded(options, start, start + size) for start in starts]
    predicted = sum(_predictions(labels) for _, labels, _ in batches)
    trained = per_token = 0.0
    scale = 1.0 if options.scale is None else options.scale.value
    for numbers, labels, mask in batches:
        tokens = torch.tensor(numbers)
        if mtp is None:
            logits, ahead = model(input_ids=tokens, attention_mask=torch.tensor(mask)).logits, 0.0
        else:
            hidden = model.model(input_ids=tokens).last_hidden_state
            logits, ahead = model.lm_head(hidden), reference_mtp.mtp_loss(torch, model, mtp, tokens, hidden)
        total = torch.nn.functional.cross_entropy(
            logits[:, :-1].float().flatten(0, 1), torch.tensor(labels)[:, 1:].flatten(), reduction="sum"
        )
        loss = total / (predicted if options.per_token else _predictions(labels) * len(batches))
        ((loss + (options.mtp_scale * ahead + routers.loss(mask)) / len(batches)) * scale).backward()
        trained += loss.item()
        per_token += total.item() / predicted
    return trained, per_token


def padded(options: Options, first: int, last: int) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """Return tokens, labels and attention mask of some samples, padded at the end to the longest of them."""
    samples = options.samples[first:last]
    length = max(map(len, samples))
    labels = samples if options.labels is None else options.labels[first:last]
    return (
        [[*tokens, *[0] * (length - len(tokens))] for tokens in samples],
        [[*row, *[IGNORED] * (length - len(row))] for row in labels],
        [[1] * len(tokens) + [0] * (length - len(tokens)) for tokens in samples],
    )


def _predictions(labels: Sequence[Sequence[int]]) -> int:
    return sum(label != IGNORED for row in labels for label in row[1:])


if __name__ == "__main__":
    read = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    train(Options(**decoded(read)))
