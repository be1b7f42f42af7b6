"""Trains the model with transformers and AdamW of torch, which share no code with Megatron.

python -m launcher.parity.reference OPTIONS.json
"""

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from launcher.job import Job, fields, value_at
from launcher.rehearse.cpu import routing, tracer
from launcher.rehearse.cpu.recorder import record

# Sections whose values change the computation; those of `model` are in config.json, which transformers reads.
_SECTIONS = frozenset({"schedule", "optimizer", "moe", "precision", "task", "lora"})
_COMPUTED = frozenset(
    {
        *("schedule.train_iters", "schedule.lr_decay_iters", "schedule.lr_warmup_iters", "schedule.lr_warmup_fraction"),
        *("optimizer.lr", "optimizer.min_lr", "optimizer.weight_decay", "optimizer.clip_grad"),
        *("optimizer.adam_beta1", "optimizer.adam_beta2", "optimizer.adam_eps"),
        *("moe.aux_loss_coeff", "moe.bias_update_rate", "moe.load_balancing_type", "moe.token_dispatcher_type"),
        *("precision.dtype", "precision.grad_reduce_in_fp32", "schedule.lr_decay_style"),
    }
)
_CHOICES: Mapping[str, tuple[object, ...]] = {
    "precision.dtype": ("fp32",),
    "schedule.lr_decay_style": ("constant", "linear", "cosine"),
}
# Values that are computed, or compute the same in fp32.
_SAME: Mapping[str, tuple[object, ...]] = {
    "precision.attention_softmax_in_fp32": (True, False),
    "precision.calculate_per_token_loss": (True, False),
    "moe.z_loss_coeff": (0.0,),
    "task.type": ("pretrain", "sft"),
    "schedule.lr_warmup_init": (0.0,),
    "schedule.epochs": (None,),
}


_IGNORED = -100


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the reference trains.

    Attributes:
        model: directory with config.json and weights.
        out: directory for the trained weights.
        samples: token numbers of each sample, in the order of the training.
        labels: of each sample, which of its tokens are predicted: their numbers, and -100 for the others; None: all but
            the first.
        per_token: whether the loss is the mean over the predicted tokens of an iteration instead of its micro-batches.
        iterations, global_batch_size, micro_batch_size: of the job.
        lr, min_lr, decay, warmup, decay_iters: learning-rate schedule; warm-up and decay in iterations.
        weight_decay, betas, eps, clip_grad: AdamW and the largest gradient norm (0: none).
        aux_loss_coeff: of the load-balancing loss of each micro-batch; 0: none.
        bias_update_rate: step of the routers' expert bias after each iteration; 0: none.
    """

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
    aux_loss_coeff: float
    bias_update_rate: float
    labels: Sequence[Sequence[int]] | None = None
    per_token: bool = False

    def to_json(self) -> str:
        """Return the options as JSON."""
        return json.dumps(asdict(self))


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
        aux_loss_coeff=(job.moe.aux_loss_coeff or 0.0) if job.model.is_moe else 0.0,
        bias_update_rate=_bias_update_rate(job),
    )


def _bias_update_rate(job: Job) -> float:
    if not job.model.router_expert_bias:
        return 0.0
    # megatron/core/transformer/transformer_config.py, moe_router_bias_update_rate
    return 1e-3 if job.moe.bias_update_rate is None else job.moe.bias_update_rate


def unsupported(job: Job) -> Iterator[tuple[str, object, str]]:
    """Yield every value that changes training and that the reference does not compute, and an override without it."""
    for path, info in fields().items():
        section, value = path.partition(".")[0], value_at(job, path)
        if section not in _SECTIONS or not info.meta.affects_training or path in _COMPUTED:
            continue
        if value != info.default and value not in _SAME.get(path, ()):
            yield path, value, f"{path}={'null' if info.default is None else info.default}"
    for path, choices in _CHOICES.items():
        if value_at(job, path) not in choices:
            yield path, value_at(job, path), f"{path}={choices[0]}"
    for name, value in job.backend.args.items():
        yield f"backend.args.{name}", value, f"without backend.args.{name}"
    if job.model.num_nextn_predict_layers:
        path = "model.num_nextn_predict_layers"
        yield path, job.model.num_nextn_predict_layers, f"{path}=0"
    if job.model.is_moe and job.moe.aux_loss_coeff:
        if job.moe.load_balancing_type != "aux_loss":
            yield "moe.load_balancing_type", job.moe.load_balancing_type, "moe.aux_loss_coeff=0"
        if job.model.scoring_func != "softmax":
            yield "model.scoring_func", job.model.scoring_func, "moe.aux_loss_coeff=0"


def rate(options: Options, iteration: int) -> float:
    """Return the learning rate of an iteration, counted from 0.

    Source: megatron/core/optimizer_param_scheduler.py, OptimizerParamScheduler.get_lr.
    """
    if options.warmup and iteration <= options.warmup:
        return options.lr * iteration / options.warmup
    if options.decay == "constant":
        return options.lr
    if iteration > options.decay_iters:
        return options.min_lr
    ratio = (iteration - options.warmup) / max(1, options.decay_iters - options.warmup)
    share = 1.0 - ratio if options.decay == "linear" else 0.5 * (math.cos(math.pi * ratio) + 1.0)
    return options.min_lr + share * (options.lr - options.min_lr)


def train(options: Options) -> None:
    """Train and record every iteration."""
    import torch
    import transformers

    tracer.install()
    routing.install()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    name = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
    # "eager": attention as it is written, softmax(QK^T)V, without a fused kernel.
    model = transformers.AutoModelForCausalLM.from_pretrained(
        options.model, attn_implementation="eager", **{name: torch.float32}
    )
    model.train()
    # Megatron-core decays neither biases nor vectors (megatron/core/optimizer/__init__.py, _get_param_groups).
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": options.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        lr=options.lr,
        betas=options.betas,
        eps=options.eps,
        foreach=False,
    )
    chosen = _count_choices(torch, model) if options.bias_update_rate else {}
    for iteration in range(options.iterations):
        optimizer.zero_grad()
        loss, token_loss = _gradients(torch, model, options, iteration)
        parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
        norm = torch.sqrt(sum((parameter.grad.double() ** 2).sum() for parameter in parameters)).item()
        if options.clip_grad > 0 and norm > options.clip_grad:
            for parameter in parameters:
                parameter.grad.mul_(options.clip_grad / (norm + 1e-6))
        for group in optimizer.param_groups:
            group["lr"] = rate(options, iteration)
        optimizer.step()
        _update_biases(torch, chosen, options.bias_update_rate)
        record(iteration + 1, loss, norm, token_loss=token_loss)
        if iteration + 1 == options.iterations:
            model.save_pretrained(options.out)
        print(f"iteration {iteration + 1}/{options.iterations} | loss {loss:.6f} | grad norm {norm:.5f}", flush=True)


def _gradients(torch: Any, model: Any, options: Options, iteration: int) -> tuple[float, float]:
    """Add the gradients of one global batch, micro-batch by micro-batch.

    Returns:
        Its loss as it is trained, and its mean loss per predicted token.
    """
    first, size = iteration * options.global_batch_size, options.micro_batch_size
    starts = range(first, first + options.global_batch_size, size)
    batches = [padded(options, start, start + size) for start in starts]
    predicted = sum(_predictions(labels) for _, labels, _ in batches)
    trained = per_token = 0.0
    for tokens, labels, mask in batches:
        routed = {"output_router_logits": True} if options.aux_loss_coeff else {}
        output = model(input_ids=torch.tensor(tokens), attention_mask=torch.tensor(mask), **routed)
        total = torch.nn.functional.cross_entropy(
            output.logits[:, :-1].float().flatten(0, 1), torch.tensor(labels)[:, 1:].flatten(), reduction="sum"
        )
        loss = total / (predicted if options.per_token else _predictions(labels) * len(batches))
        extra = (
            _balancing(torch, model, _unpadded(torch, output.router_logits, mask)) if options.aux_loss_coeff else 0.0
        )
        (loss + options.aux_loss_coeff * extra / len(batches)).backward()
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
        [[*row, *[_IGNORED] * (length - len(row))] for row in labels],
        [[1] * len(tokens) + [0] * (length - len(tokens)) for tokens in samples],
    )


def _predictions(labels: Sequence[Sequence[int]]) -> int:
    return sum(label != _IGNORED for row in labels for label in row[1:])


def _count_choices(torch: Any, model: Any) -> dict[Any, list[Any]]:
    """Return the routers with an expert bias, each with a list that collects the experts that it chooses."""
    found: dict[Any, list[Any]] = {}
    for module in model.modules():
        if getattr(module, "e_score_correction_bias", None) is None:
            continue
        picks: list[Any] = []
        found[module] = picks

        def keep(_module: Any, _inputs: Any, output: Any, picks: list[Any] = picks) -> None:
            picks.append(next(each for each in output if not torch.is_floating_point(each)).detach())

        module.register_forward_hook(keep)
    return found


def _update_biases(torch: Any, chosen: dict[Any, list[Any]], step: float) -> None:
    """Move each expert's bias towards an even load, as Megatron-core does (arXiv:2408.15664, algorithm 1)."""
    for router, picks in chosen.items():
        bias = router.e_score_correction_bias
        load = torch.bincount(torch.cat([each.flatten() for each in picks]), minlength=len(bias)).float()
        bias.data.add_(torch.sign(load.mean() - load) * step)
        picks.clear()


def _unpadded(torch: Any, logits: Sequence[Any], mask: Sequence[Sequence[int]]) -> Sequence[Any]:
    """Return the router logits of each layer, [tokens, experts], without those of padding."""
    kept = torch.tensor(mask).flatten().bool()
    return [layer.reshape(len(kept), -1)[kept] for layer in logits]


def _balancing(torch: Any, model: Any, logits: Sequence[Any]) -> Any:
    """Return the load-balancing loss of Switch Transformers (arXiv:2101.03961, eq. 4 to 6), summed over layers.

    Per layer E * sum_e f_e P_e, with the share f_e of the top-k choices and the mean probability P_e of each expert.
    """
    chosen = model.config.num_experts_per_tok
    total = torch.zeros(())
    for layer in logits:
        scores = torch.softmax(layer.float(), dim=-1)
        experts = scores.shape[-1]
        picks = torch.topk(scores, chosen, dim=-1).indices
        share = torch.bincount(picks.flatten(), minlength=experts).float() / picks.numel()
        total = total + experts * (share * scores.mean(0)).sum()
    return total


if __name__ == "__main__":
    read = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    train(Options(**{**read, "betas": tuple(read["betas"])}))
