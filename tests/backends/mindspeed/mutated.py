"""What is changed in MindSpeed-LLM's real command lines, beside the mutations of Megatron's arguments."""

import dataclasses
import json
import math
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.backends.megatron_lm.mutated import MUTATIONS as MEGATRON
from tests.backends.mutated import Line

MUTATIONS = dataclasses.replace(
    MEGATRON,
    sizes={
        **MEGATRON.sizes,
        "--ulysses-degree-in-cp": (1, 2, 3, 4, 8),
        "--cp-window-size": (1, 2, 3, 4),
        "--padded-vocab-size": (511, 512, 151936),
        "--n-shared-experts": (1, 2),
        "--first-k-dense-replace": (0, 1, 3, 70),
        "--noop-layers": (0, 7, 61, 93),
        "--swap-optimizer-times": (1, 16),
        "--moe-fb-overlap-num": (1,),
        "--tp-x": (1, 2),
        "--tp-y": (1, 2),
        "--q-lora-rank": (512, 1536),
        "--kv-lora-rank": (512,),
        "--sliding-window": (512, 4096),
        "--recompute-in-advance": (1,),
        "--lora-r": (0, 8, 64),
        "--lora-alpha": (16, 32),
        "--moe-extended-tp": (1,),
    },
    values={
        **MEGATRON.values,
        "--context-parallel-algo": (
            "ulysses_cp_algo",
            "megatron_cp_algo",
            "hybrid_cp_algo",
            "adaptive_cp_algo",
            "hybrid_adaptive_cp_algo",
            "kvallgather_cp_algo",
            None,
        ),
        "--attention-mask-type": ("causal", "general", None),
        "--cp-attention-mask-type": ("causal", "general", None),
        "--swap-modules": ("self_attention", "input_layernorm,self_attention,pre_mlp_layernorm", None),
        "--recompute-activation-function-num-layers": ("1", "50", None),
        "--num-layer-list": ("1,2,3", None),
        "--shape-order": ("BNSD", "SBH", "BSH", "TND", None),
        "--moe-token-dispatcher-type": ("allgather", "alltoall", "alltoall_seq", "flex", None),
        "--schedules-method": ("dualpipev", None),
        "--rope-scaling-type": ("yarn", "llama3", "plm", None),
        "--optimizer": ("adam", "sgd", "muon", None),
        "--reset-position-ids": ("", None),
        "--variable-seq-lengths": ("", None),
        "--prompt-type": ("qwen", "empty", "nonsense", None),
        "--stage": ("sft", "dpo", "orm", None),
        "--sparse-mode": ("2", "4", None),
        "--pre-tockens": ("1024", None),
    },
    switches=(
        *MEGATRON.switches,
        "--recompute-activation-function",
        "--recompute-norm",
        "--enable-recompute-layers-per-pp-rank",
        "--swap-attention",
        "--swap-optimizer",
        "--reuse-fp32-param",
        "--use-fused-rmsnorm",
        "--use-fused-swiglu",
        "--use-fused-rotary-pos-emb",
        "--use-rotary-position-embeddings",
        "--use-ascend-mc2",
        "--use-ascend-coc",
        "--tp-2d",
        "--moe-alltoall-overlap-comm",
        "--moe-allgather-overlap-comm",
        "--moe-permutation-async-comm",
        "--moe-fb-overlap",
        "--moe-tp-extend-ep",
        "--moe-zero-memory-num-layers",
        "--use-fused-moe-token-permute-and-unpermute",
        "--gemm-gradient-accumulation-fusion",
        "--use-ulysses-allgather-kv",
        "--kv-head-repeat-before-uly-alltoall",
        "--use-cp-send-recv-overlap",
        "--use-fused-ring-attention-update",
        "--is-instruction-dataset",
        "--pack",
        "--neat-pack",
        "--padded-samples",
        "--enable-hf2mg-convert",
        "--enable-mg2hf-convert",
        "--no-shared-storage",
        "--use-glm-rope",
        "--seq-aux",
        "--shared-expert-gate",
        "--disable-gloo-group",
        "--no-enable-linear-ce",
        "--enable-mla-absorb",
        "--share-kvstates",
        "--use-mc2",
        "--gated-attention",
        "--group-query-attention",
        "--log-throughput",
        "--use-deter-comp",
        "--npu-deterministic",
        "--unaligned-linear",
        "--manual-gc",
    ),
    joint=(
        *MEGATRON.joint,
        "--context-parallel-size 4 --context-parallel-algo hybrid_cp_algo --ulysses-degree-in-cp 2",
        "--context-parallel-size 8 --context-parallel-algo hybrid_cp_algo --ulysses-degree-in-cp 2 --cp-window-size 2",
        "--context-parallel-size 4 --context-parallel-algo megatron_cp_algo --cp-window-size 2",
        "--context-parallel-size 2 --context-parallel-algo ulysses_cp_algo",
        "--context-parallel-size 2 --context-parallel-algo kvallgather_cp_algo",
        "--swap-attention --recompute-num-layers 1",
        "--recompute-granularity full --recompute-method block --recompute-num-layers 2 "
        "--enable-recompute-layers-per-pp-rank",
        "--recompute-granularity full --recompute-method block --recompute-num-layers 2 --recompute-in-advance",
        "--recompute-in-bubble",
        "--moe-zero-memory level0",
        "--moe-zero-memory level1 --moe-zero-memory-num-layers 1",
        "--tp-2d --tp-x 2 --tp-y 2 --tensor-model-parallel-size 4",
        "--schedules-method dualpipev --pipeline-model-parallel-size 2",
        "--moe-fb-overlap --schedules-method dualpipev",
        "--num-layers-per-virtual-pipeline-stage 1 --noop-layers 0,1",
        "--neat-pack --reset-attention-mask",
        "--lora-r 8 --lora-alpha 16 --lora-target-modules linear_qkv linear_proj",
        "--reset-attention-mask --context-parallel-size 2",
        "--sliding-window 4096 --context-parallel-size 2",
        "--fp8-format hybrid --fp8-recipe mxfp8 --transformer-impl transformer_engine",
    ),
)
_PLACES = ("your", "/data/", "./", "/home/")


def bases(corpus: Path, folder: Path | None = None) -> list[Line]:
    """Return the command lines of the corpus file that start MindSpeed-LLM's own program; see `lines_of`."""
    records = map(json.loads, corpus.read_text(encoding="utf-8").splitlines())
    return lines_of(records, folder or Path(tempfile.gettempdir()) / "launch-mindspeed")


def lines_of(records: Iterable[Mapping[str, Any]], folder: Path) -> list[Line]:
    """Return the training command lines among records with path, entry, argv and world_size.

    Args:
        folder: where the folders are made that stand for those that the command lines name.
    """
    (folder / "weights").mkdir(parents=True, exist_ok=True)
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "weights" / "model.safetensors").touch()
    (folder / "weights" / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"]}', encoding="utf-8")
    own = ("pretrain_", "posttrain_")
    return [line_of(record, folder) for record in records if record.get("entry", "").startswith(own)]


def line_of(record: Mapping[str, Any], folder: Path) -> Line:
    """Return a record's command line with folders that exist for its placeholders; weights where it converts them."""
    place = folder / ("weights" if "--enable-hf2mg-convert" in record["argv"] else "empty")
    args = tuple(str(place) if arg.startswith(_PLACES) else arg for arg in record["argv"])
    options = (record.get("launcher") or {}).get("opts") or {}
    world = record.get("world_size")
    if not isinstance(world, int):
        sizes = [str(options.get(name, "")) for name in ("nproc_per_node", "nnodes")]
        world = math.prod(int(size) if size.isdigit() else 8 for size in sizes)
    return Line(
        name=record["path"], argv=args, world_size=world, env=record.get("env") or {}, program=(record["entry"],)
    )
