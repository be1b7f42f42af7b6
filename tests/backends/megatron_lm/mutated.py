"""Mutations of real command lines with Megatron's arguments, and the real verdicts beside ours."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from launcher import api
from launcher.pipeline import judge
from tests.backends.megatron_lm.verdicts import ENVIRONMENT, LATER, MACHINE, validator
from tests.backends.mutated import Line, Mutations
from tests.backends.users_path import UsersPath, reasons, torchrun_script, version_words
from tests.backends.verdicts import Verdict, ask
from tests.sampling import ROOT

_SMALL = (1, 2, 3, 4, 8, 16)
MUTATIONS = Mutations(
    sizes={
        "--tensor-model-parallel-size": _SMALL,
        "--pipeline-model-parallel-size": _SMALL,
        "--context-parallel-size": _SMALL,
        "--expert-model-parallel-size": (1, 2, 4, 8, 16, 3),
        "--expert-tensor-parallel-size": (1, 2, 4, 3),
        "--num-layers": (4, 7, 8, 12, 16, 24, 61),
        "--num-attention-heads": (6, 8, 12, 16, 32, 40),
        "--num-query-groups": (1, 2, 3, 4, 8),
        "--hidden-size": (250, 512, 1024, 4096),
        "--ffn-hidden-size": (510, 1024, 4096),
        "--seq-length": (130, 512, 1023, 4096, 8192),
        "--max-position-embeddings": (512, 4096, 32768),
        "--micro-batch-size": (1, 2, 3, 4),
        "--global-batch-size": (6, 8, 64, 100, 256),
        "--num-layers-per-virtual-pipeline-stage": (1, 2, 3, 4),
        "--num-virtual-stages-per-pipeline-rank": (1, 2, 3),
        "--decoder-first-pipeline-num-layers": (1, 2, 3, 5),
        "--decoder-last-pipeline-num-layers": (1, 2, 3, 5),
        "--recompute-num-layers": (1, 2, 3, 50),
        "--num-experts": (4, 6, 8, 16, 64),
        "--moe-router-topk": (1, 2, 3, 8, 9, 65),
        "--moe-router-num-groups": (2, 3, 4, 8),
        "--moe-router-group-topk": (1, 2, 4, 9),
        "--moe-shared-expert-intermediate-size": (1, 100, 1024),
        "--moe-ffn-hidden-size": (100, 768, 1024),
        "--mtp-num-layers": (1, 2, 3),
        "--kv-channels": (32, 64, 128),
        "--train-iters": (1, 10, 100, 1000),
        "--train-samples": (64, 6400),
        "--lr-warmup-iters": (0, 1, 5, 2000),
        "--lr-decay-iters": (1, 50, 5000),
        "--save-interval": (1, 100),
        "--eval-interval": (1, 100),
        "--eval-iters": (0, 1, 10),
        "--log-interval": (1, 10),
        "--vocab-size": (511, 32000),
        "--make-vocab-size-divisible-by": (1, 64, 128),
    },
    values={
        "--recompute-granularity": ("full", "selective", None),
        "--recompute-method": ("uniform", "block", None),
        "--recompute-modules": ("core_attn", "moe_act", "mlp layernorm", "mla_up_proj", "moe", None),
        "--moe-token-dispatcher-type": ("allgather", "alltoall", "flex", None),
        "--moe-router-load-balancing-type": ("aux_loss", "seq_aux_loss", "sinkhorn", "none", None),
        "--moe-router-score-function": ("softmax", "sigmoid", None),
        "--moe-expert-capacity-factor": ("1.0", "-1", None),
        "--moe-layer-freq": ("1", "2", "([1]*4)", "([0]*1+[1]*7)", None),
        "--moe-aux-loss-coeff": ("0", "0.01", None),
        "--cp-comm-type": ("p2p", "a2a", "allgather", "a2a+p2p", None),
        "--position-embedding-type": ("learned_absolute", "rope", "none", None),
        "--normalization": ("LayerNorm", "RMSNorm", None),
        "--transformer-impl": ("local", "transformer_engine", None),
        "--attention-dropout": ("0.0", "0.1", "1.5", None),
        "--hidden-dropout": ("0.0", "0.1", None),
        "--optimizer": ("adam", "sgd", None),
        "--lr-decay-style": ("constant", "linear", "cosine", "WSD", "inverse-square-root", None),
        "--lr-warmup-fraction": ("0.01", "0.1", "1.5", None),
        "--lr": ("1e-4", "0", None),
        "--min-lr": ("1e-6", "1.0", None),
        "--weight-decay": ("0.1", "-0.1", None),
        "--fp8-format": ("hybrid", "e4m3", None),
        "--fp8-recipe": ("delayed", "tensorwise", "mxfp8", None),
        "--dataloader-type": ("single", "cyclic", "external", None),
        "--tokenizer-type": ("NullTokenizer", None),
        "--ckpt-format": ("torch", "torch_dist", "zarr", None),
        "--split": ("99,1,0", "100,0,0", None),
        "--pipeline-model-parallel-layout": ("Et*4|t*4L", None),
        "--rampup-batch-size": ("8 8 100", "4 3 100", None),
        "--attention-backend": ("flash", "fused", "unfused", "local", "auto", None),
        "--rotary-base": ("10000", "500000", None),
        "--init-method-std": ("0.02", "0", None),
        "--loss-scale": ("128", None),
        "--no-load-optim": ("", None),
    },
    switches=(
        "--sequence-parallel",
        "--use-distributed-optimizer",
        "--overlap-grad-reduce",
        "--overlap-param-gather",
        "--bf16",
        "--fp16",
        "--group-query-attention",
        "--untie-embeddings-and-output-weights",
        "--swiglu",
        "--use-flash-attn",
        "--moe-grouped-gemm",
        "--moe-permute-fusion",
        "--moe-shared-expert-overlap",
        "--moe-pad-expert-input-to-capacity",
        "--moe-router-pre-softmax",
        "--moe-router-enable-expert-bias",
        "--multi-latent-attention",
        "--qk-layernorm",
        "--add-qkv-bias",
        "--disable-bias-linear",
        "--recompute-activations",
        "--distribute-saved-activations",
        "--tp-comm-overlap",
        "--no-persist-layer-norm",
        "--no-rope-fusion",
        "--no-gradient-accumulation-fusion",
        "--no-masked-softmax-fusion",
        "--accumulate-allreduce-grads-in-fp32",
        "--attention-softmax-in-fp32",
        "--account-for-embedding-in-pipeline-split",
        "--account-for-loss-in-pipeline-split",
        "--overlap-moe-expert-parallel-comm",
        "--delay-wgrad-compute",
        "--optimizer-cpu-offload",
        "--use-precision-aware-optimizer",
        "--fp8-param-gather",
        "--async-save",
        "--finetune",
        "--no-load-rng",
        "--exit-on-missing-checkpoint",
        "--reset-position-ids",
        "--reset-attention-mask",
        "--eod-mask-loss",
        "--manual-gc",
        "--use-cpu-initialization",
        "--calculate-per-token-loss",
        "--mock-data",
        "--cross-entropy-loss-fusion",
        "--use-mcore-models",
        "--deterministic-mode",
        "--external-cuda-graph",
        "--cpu-offloading",
    ),
    joint=(
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        "--recompute-granularity full --recompute-method block --recompute-num-layers 2",
        "--tensor-model-parallel-size 2 --sequence-parallel",
        "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1",
        "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2",
        "--num-experts 8 --expert-model-parallel-size 2",
        "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
        "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2",
        "--group-query-attention --num-query-groups 4",
        "--mtp-num-layers 1 --mtp-loss-scaling-factor 0.1",
        "--multi-latent-attention --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128",
        "--moe-expert-capacity-factor 1.5 --moe-pad-expert-input-to-capacity",
        "--moe-router-score-function sigmoid --moe-router-enable-expert-bias",
        "--moe-router-num-groups 4 --moe-router-group-topk 2",
        "--fp8-format hybrid --fp8-recipe delayed",
        "--cpu-offloading --cpu-offloading-num-layers 2",
        "--lr-decay-style WSD --lr-wsd-decay-iters 10 --lr-wsd-decay-style linear",
        "--weight-decay-incr-style linear --start-weight-decay 0.1 --end-weight-decay 0.2",
    ),
    keep=frozenset(),
)


def bases(folder: Path) -> list[Line]:
    """Return the training command lines of Megatron-LM's functional tests, `model_config.yaml` under a folder."""
    found = []
    for path in sorted(folder.rglob("model_config.yaml")):
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
        arguments = settings.get("MODEL_ARGS") if isinstance(settings, dict) else None
        if isinstance(arguments, dict) and "--num-layers" in arguments and "--train-iters" in arguments:
            env = {str(name): str(value) for name, value in (settings.get("ENV_VARS") or {}).items()}
            args = tuple(arg for name, value in arguments.items() for arg in _words(str(name), value))
            found.append(Line(name=path.parent.name, argv=args, world_size=8, env=env))
    return found


def _words(name: str, value: Any) -> list[str]:
    if value is True:
        return [name]
    if value is False or value is None:
        return []
    text = str(value).replace("\\", "")  # written for a shell
    return [name, *([text] if text.startswith(("(", "[")) else text.split())]


def compare(
    backend: str, version: str, lines: Sequence[Line], path: UsersPath, arguments: Sequence[str] = (), **settings: Any
) -> list[Verdict]:
    """Judge command lines by `launch check` and by the real checks."""
    program = validator(backend, arguments, **settings)
    usual = [dataclasses.replace(line, env={**ENVIRONMENT, **line.env}) for line in lines]
    lines = sorted(usual, key=lambda line: line.name.partition(":")[0])
    cases = [{"argv": list(line.argv), "world_size": line.world_size, "env": dict(line.env)} for line in lines]
    answers = ask(program, cases)
    args = version_words(backend, version)
    ours = [path.script(torchrun_script(line), *args).errors for line in lines]
    return [
        Verdict(
            name=line.name,
            ours=refused,
            real=answer or None,
            later=reasons(refused, version, LATER),
            machine=MACHINE,
            about={"argv": " ".join(line.argv), "devices": line.world_size},
        )
        for line, refused, answer in zip(lines, ours, answers, strict=True)
    ]


def recipe_lines() -> Iterator[Line]:
    """Yield the command lines that the recipes become."""
    for path in sorted((ROOT / "recipes").glob("*.yaml")):
        job = api.compose([f"+recipe={path.stem}", "backend=megatron_lm"])
        if judge(job, fixes=False).ok:
            argv = api.plan(job).nodes[0].argv
            start = next(place for place, arg in enumerate(argv) if arg.endswith("pretrain_gpt.py")) + 1
            yield Line(name=path.stem, argv=tuple(argv[start:]), world_size=job.cluster.world_size)
