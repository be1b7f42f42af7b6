"""Mapping table of plain Megatron-LM between canonical fields and arguments, with the unsupported fields."""

from functools import cache

from backends.megatron_lm import static_graph
from backends.megatron_lm.mapping import attention_variants as variants
from backends.megatron_lm.mapping import checkpoints as saving
from backends.megatron_lm.mapping import data_and_checkpoints as surroundings
from backends.megatron_lm.mapping import details, model, moe, parallel, services, state_space, training
from backends.megatron_lm.mapping import sharding as layout
from backends.megatron_lm.mapping.factories import reworded, rotary_flag
from launcher.catalogue.versions import in_range
from launcher.job import field_paths
from launcher.mapping.rows import Gap, Row, Table

LAUNCHER_ONLY = "only the launcher reads it"


@cache
def rows() -> tuple[Row, ...]:
    """Return the rows of all versions, in the customary argument order."""
    return (
        reworded(
            {},
            {"use-mcore-models": True},
            note="Megatron-core models are the only ones left.",
        ),
        rotary_flag(),
        services.lengths(),
        details.says_nothing(),
        *saving.ignored(),
        *training.task(),
        *parallel.parallel(),
        *layout.sharding(),
        *model.sizes(),
        *model.layers(),
        *model.positions(),
        *details.model(),
        state_space.stack(),
        *state_space.sizes(),
        *state_space.constants(),
        *variants.layers(),
        *model.latent_attention(),
        *variants.attention(),
        *moe.experts(),
        *moe.routing(),
        *moe.balance(),
        *moe.dispatch(),
        *variants.experts(),
        *model.multi_token_prediction(),
        *surroundings.tokenizer(),
        *details.tokenizer(),
        *surroundings.vocabulary(),
        *training.batch(),
        training.packing(),
        *details.rampup(),
        *training.schedule(),
        *details.schedule(),
        *services.schedule(),
        *training.optimizer(),
        *details.optimizer(),
        *services.clipping(),
        *training.precision(),
        *details.precision(),
        *variants.precision(),
        *training.seed(),
        variants.recompute_experts(),
        *parallel.recompute(),
        *parallel.offload(),
        *parallel.overlap(),
        *parallel.kernels(),
        *details.parallel(),
        *variants.kernels(),
        *layout.communication(),
        *layout.overlap(),
        *layout.cuda_graphs(),
        *layout.host(),
        layout.flash_switch(),
        *surroundings.data(),
        *details.data(),
        *services.data(),
        *surroundings.checkpoint(),
        *details.checkpoint(),
        *saving.saving(),
        *saving.loading(),
        *surroundings.logging(),
        *details.logging(),
        *services.logging(),
        *saving.memory(),
        *details.faults(),
        *services.faults(),
        *surroundings.evaluation(),
    )


@cache
def table(version: str) -> Table:
    """Return the whole mapping of one version."""
    unsupported = {**static_graph.GAPS, **services.GAPS, **saving.GAPS, **_GAPS, **_POST_TRAINING}
    unsupported.update(variants.gaps(in_range(version, "0.16", None)))
    if not in_range(version, "0.13", None):
        unsupported.update(_BEFORE_0_13)
    if not in_range(version, "0.16", None):
        unsupported.update({**details.BEFORE_0_16, **services.BEFORE_0_16, **layout.BEFORE_0_16, **saving.BEFORE_0_16})
    return Table(rows=rows(), unsupported=unsupported, irrelevant=irrelevant())


def irrelevant() -> dict[str, str]:
    """Return the fields that need no Megatron argument, with the reason."""
    sections = ("cluster.", "hardware.", "rehearse.", "rules.", "estimate.", "search.", "imported.")
    alone = {"name", "output_dir", "runtime", "model.overridden"}
    alone |= {"backend.name", "backend.version"}
    launcher_fields = [path for path in field_paths() if path.startswith(sections) or path in alone]
    return {
        **static_graph.irrelevant(),
        **dict.fromkeys(launcher_fields, LAUNCHER_ONLY),
        "backend.args": "passed through as they are",
        "backend.env": "set in the environment of every node",
        "model.model_type": "the architecture is written out argument by argument",
        "parallel.dp": "what remains of the world size",
        "cluster.nodes": "torchrun --nnodes",
        "cluster.devices_per_node": "torchrun --nproc_per_node",
        "cluster.master_addr": "torchrun --master_addr",
        "cluster.master_port": "torchrun --master_port",
        "fault_tolerance.max_restarts": "the launcher starts all ranks again, with the last checkpoint",
        "fault_tolerance.hang_minutes": LAUNCHER_ONLY,
    }


def _ascend(why: str, *works: str, neutral: tuple[object, ...] = (False,), severity: str = "warning") -> Gap:
    return Gap(why=why, neutral=neutral, severity=severity, works=works)


_GAPS = {
    "parallel.cp_window": _ascend("Megatron's ring has one level", "parallel.cp_window=1", neutral=(1,)),
    "parallel.cp_mask_type": _ascend(
        "attention of GPT models is causal", "parallel.cp_mask_type=causal", neutral=("causal",), severity="error"
    ),
    "parallel.noop_layers": Gap(
        why="empty layers exist on Ascend only",
        works=("parallel.first_stage_layers=…", "parallel.last_stage_layers=…", "parallel.layout=…"),
    ),
    "parallel.tp_2d_x": _ascend("2-D tensor parallelism exists on Ascend only", neutral=(1,), severity="error"),
    "parallel.tp_2d_y": _ascend("2-D tensor parallelism exists on Ascend only", neutral=(1,), severity="error"),
    "recompute.activation": _ascend("the activation function alone is not recomputed", "recompute.modules=[moe_act]"),
    "recompute.activation_num_layers": _ascend("the activation function alone is not recomputed", neutral=(0,)),
    "recompute.norm": _ascend("it is a module of selective recomputation", "recompute.modules=[layernorm]"),
    "recompute.norm_num_layers": _ascend("norms are recomputed in all layers or none", neutral=(0,)),
    "recompute.per_pp_rank": _ascend("recompute.num_layers counts per chunk"),
    "recompute.layers_per_chunk": Gap(
        why="recompute.num_layers holds for all chunks", works=("recompute.layers_per_chunk=[]",)
    ),
    "recompute.selective_layers_per_chunk": Gap(
        why="selective recomputation holds for all layers or none", works=("recompute.selective_layers_per_chunk=[]",)
    ),
    "recompute.in_bubble": _ascend("pipeline bubbles stay empty"),
    "recompute.in_advance": _ascend("recomputation starts when the gradient arrives"),
    "recompute.communication": _ascend("MindFormers' switch; Megatron repeats it"),
    "offload.optimizer_times": _ascend("the optimizer is offloaded as a whole", neutral=()),
    "moe.dispatch_overlap": _ascend("only shared experts hide the dispatch", "moe.shared_expert_overlap=true"),
    "moe.tp_extend_ep": _ascend("say it with parallel.etp=1 and a larger parallel.ep", "parallel.etp=1"),
    "kernels.rmsnorm_fusion": _ascend("the layer library decides: transformer_engine's is fused", neutral=(True,)),
    "batch.padding_free": _ascend("samples of a batch stay apart"),
    "batch.variable_seq_lengths": _ascend("training resets it to false (validate_args)"),
    "schedule.epochs": Gap(why="training is counted in steps or samples", works=("schedule.train_iters=1000",)),
    "data.num_preprocess": _ascend("tokenizing is a separate program (tools/preprocess_data.py)", neutral=()),
    "data.shuffle": Gap(
        why="token files are always shuffled by the seed", neutral=(True,), works=("data.shuffle=true",)
    ),
    "data.seed": _ascend(
        "token files are shuffled by the job's seed: the same samples in another order", "data.seed=null", neutral=()
    ),
    "data.streaming": Gap(
        why="token files are indexed before training", neutral=(False,), works=("data.streaming=false",)
    ),
    "data.lazy_tokenize": _ascend("data is tokenized before training"),
    "data.system": Gap(why="system prompts stand in the data"),
    "data.self_cognition_author": Gap(why="self-cognition data is not generated"),
    "data.self_cognition_name": Gap(why="self-cognition data is not generated"),
    "checkpoint.save_safetensors": _ascend("Megatron-LM writes its own format only"),
    "checkpoint.save_total_limit": _ascend("old checkpoints are not removed", neutral=()),
    "profiler.path": _ascend("traces go to logging.tensorboard_dir", "logging.tensorboard_dir=…", neutral=()),
}

_POST_TRAINING = {
    **{
        path: Gap(why="Megatron-LM has no preference training")
        for path in field_paths()
        if path.startswith("task.") and path != "task.type"
    },
    "lora.rank": Gap(why="Megatron-LM trains all parameters", works=("lora.rank=null",)),
    **{
        path: Gap(why="Megatron-LM has no LoRA")
        for path in field_paths()
        if path.startswith("lora.") and path != "lora.rank"
    },
}

_BEFORE_0_13 = {
    "parallel.layout": Gap(why="layouts came with core 0.13", works=("backend.version=0.16.1",)),
    "moe.batch_overlap": _ascend("it came with core 0.13", "backend.version=0.16.1"),
    "moe.router_fusion": _ascend("it came with core 0.13", "backend.version=0.16.1"),
    "offload.attention": _ascend("it came with core 0.16", "backend.version=0.16.1"),
    "offload.modules": _ascend("it came with core 0.16", "backend.version=0.16.1", neutral=()),
    "offload.activation_layers": _ascend("it came with core 0.16", "backend.version=0.16.1", neutral=(0,)),
    "tokenizer.trust_remote_code": _ascend("it came with core 0.13", "backend.version=0.16.1"),
    "checkpoint.optimizer_fully_reshardable": _ascend(
        "checkpoints of this version are always reshardable", neutral=(True,)
    ),
    "data.template": Gap(why="this version trains on token files only", works=("backend.version=0.16.1",)),
}
