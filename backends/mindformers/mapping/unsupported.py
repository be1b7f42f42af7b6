"""Canonical fields that MindFormers cannot express, and those that do not apply to it, with reasons."""

from collections.abc import Callable, Mapping

from backends.mindformers.mapping.support import is_legacy
from launcher.job import Job, field_paths
from launcher.mapping.rows import Gap

_NO_EVALUATION = "training does not evaluate: MindFormers needs a whole eval_dataset for that"
_TOKENIZER = "it loads Hugging Face tokenizers"
_GRAPH = "the graph compiler places it; it has no key of its own"


def _speed(why: str, *neutral: object) -> Gap:
    return Gap(why=why, neutral=neutral, severity="warning")


def _is_modern(job: Job) -> bool:
    return not is_legacy(job)


def _evaluates(matters: Callable[[Job], bool]) -> Gap:
    return Gap(why=_NO_EVALUATION, severity="warning", matters=matters)


def _preference(name: str) -> Gap:
    return Gap(why=f"{name} belongs to preference training, which MindFormers does not have", works=("task.type=sft",))


_TASK = {
    f"task.{name}": _preference(name)
    for name in (
        "beta",
        "loss_type",
        "label_smoothing",
        "simpo_gamma",
        "rpo_alpha",
        "desirable_weight",
        "undesirable_weight",
        "reference_model",
    )
}

_LORA = {
    "lora.rslora": Gap(why="its LoRA scales by alpha / rank only (pet/pet_config.py)", neutral=(False,)),
    "lora.merge": Gap(why="it writes adapters inside its checkpoints only", neutral=(False,), severity="warning"),
    "lora.quantization": Gap(why="it has no quantised base weights"),
    "lora.load": Gap(why="adapters are loaded as part of a checkpoint", works=("checkpoint.load=DIR",)),
}

_MODEL = {
    "model.partial_rotary_factor": Gap(why="its training classes rotate the whole head (gpt_model.py)", neutral=(1.0,)),
    "model.rope_scaling.low_freq_factor": Gap(why="it has no Llama-3 stretching of positions in training"),
    "model.rope_scaling.high_freq_factor": Gap(why="it has no Llama-3 stretching of positions in training"),
}

_BATCH = {
    "batch.padding_free": Gap(
        why="samples are padded, or packed with batch.packing", neutral=(False,), works=("batch.packing=true",)
    ),
    "batch.variable_seq_lengths": _speed("a static graph has one length", False),
}

_PRECISION = {
    "precision.fp8_format": Gap(why="Ascend's static graph trains in bf16, fp16 or fp32"),
    "precision.fp8_recipe": Gap(why="Ascend's static graph trains in bf16, fp16 or fp32"),
    "precision.fp8_param_gather": Gap(why="Ascend's static graph trains in bf16, fp16 or fp32", neutral=(False,)),
    "precision.grad_reduce_in_fp32": Gap(
        why="weights are fp32 (params_dtype), so gradients are too",
        neutral=(True,),
        works=("precision.grad_reduce_in_fp32=true",),
    ),
    "optimizer.sgd_momentum": Gap(why="the optimizer is AdamW"),
    "optimizer.precision_aware": Gap(why="optimizer states are fp32 (core/optim/adamw.py:180)", neutral=(False,)),
    "optimizer.main_grads_dtype": Gap(why="main gradients are fp32", neutral=("fp32",)),
    "optimizer.exp_avg_dtype": Gap(why="optimizer states are fp32 (core/optim/adamw.py:180)", neutral=("fp32",)),
    "optimizer.exp_avg_sq_dtype": Gap(why="optimizer states are fp32 (core/optim/adamw.py:180)", neutral=("fp32",)),
}

_KERNELS = {
    "kernels.transformer_impl": _speed("it has one layer library", "local"),
    "kernels.masked_softmax_fusion": _speed("flash attention has its own softmax", False),
    "kernels.gradient_accumulation_fusion": _speed(_GRAPH, False),
    "kernels.cross_entropy_fusion": _speed("it has no such switch", False),
    "kernels.cross_entropy_fusion_impl": _speed("it has no such switch"),
}

_PARALLEL = {
    "parallel.cp_window": _speed("its ring attention has one ring"),
    "parallel.cp_mask_type": Gap(why="masks are causal", neutral=("causal",), works=("parallel.cp_mask_type=causal",)),
    "parallel.microbatch_group_size": _speed("MindSpore's 1f1b takes one micro-batch per chunk and stage in a row"),
    "parallel.tp_2d_x": Gap(why="its mcore graph has no 2-D tensor parallelism", neutral=(1,)),
    "parallel.tp_2d_y": Gap(why="its mcore graph has no 2-D tensor parallelism", neutral=(1,)),
    "overlap.grad_reduce": _speed(_GRAPH, True),
    "overlap.param_gather": _speed(_GRAPH, True),
    "overlap.tp_comm": _speed(_GRAPH),
    "overlap.p2p": _speed(_GRAPH),
}

_MEMORY = {
    "recompute.in_bubble": _speed("it does not recompute in pipeline bubbles", False),
    "recompute.in_advance": _speed("it recomputes when the gradient arrives", False),
    "offload.modules": _speed("it swaps attention (offload.attention) or whole layers (offload.activation_layers)"),
    "offload.optimizer_fraction": _speed("optimizer.swap is all or nothing", 0.0, 1.0),
    "offload.optimizer_times": _speed("optimizer.swap has no pieces"),
}

_IGNORED = "its mcore router and experts read past it (training_graph/transformer/moe), so it would change nothing"
_MOE = {
    "moe.z_loss_coeff": Gap(why=_IGNORED, neutral=(0.0,)),
    "moe.pad_to_capacity": Gap(why=_IGNORED, neutral=(False,)),
    "moe.token_drop_policy": Gap(why=_IGNORED + ": no token is dropped"),
    "moe.input_jitter_eps": Gap(why=_IGNORED, neutral=(0.0,)),
    "moe.dispatch_overlap": _speed(_GRAPH, False),
    "moe.batch_overlap": _speed("it does not run two micro-batches at once", False),
    "moe.deepep": _speed("Ascend has its own all-to-all", False),
    "moe.tp_extend_ep": _speed("experts are always spread over tensor-parallel ranks too", True),
}

_DATA = {
    "data.validation_paths": _evaluates(lambda job: not (is_legacy(job) and job.evaluation.iters == 0)),
    "data.validation_ratio": _speed(_NO_EVALUATION, 0.0),
    **{
        f"evaluation.{name}": _evaluates(lambda job: job.evaluation.iters != 0)
        for name in ("interval", "epochs", "shuffle", "drop_last", "columns")
    },
    "evaluation.iters": _speed(_NO_EVALUATION, 0),
    "data.num_preprocess": _speed("it tokenizes in one process"),
    "data.streaming": Gap(why="streaming needs a size and a state directory (hf_dataloader.py)", neutral=(False,)),
    "data.lazy_tokenize": _speed("it tokenizes before training", False),
    "data.template": Gap(why="its Alpaca handler has one prompt text of its own", neutral=("alpaca",)),
    "data.system": Gap(why="its Alpaca handler has one prompt text of its own"),
    "data.self_cognition_author": Gap(why="it does not fill in self-cognition data"),
    "data.self_cognition_name": Gap(why="it does not fill in self-cognition data"),
    "tokenizer.type": Gap(why="it loads Hugging Face tokenizers", neutral=("HuggingFaceTokenizer",)),
    "tokenizer.vocab_file": Gap(why=f"{_TOKENIZER}, from their directory (tokenizer.path)", matters=_is_modern),
    "tokenizer.merge_file": Gap(why=f"{_TOKENIZER}, from their directory (tokenizer.path)", matters=_is_modern),
    **{
        f"tokenizer.{name}_token": Gap(why=f"{_TOKENIZER}, which know it", severity="warning", matters=_is_modern)
        for name in ("bos", "eos", "pad", "unk")
    },
}

_GENERATION = {
    path: Gap(
        why="its mcore files of training say nothing of generated text",
        severity="warning",
        neutral=(False,),
        matters=_is_modern,
    )
    for path in field_paths()
    if path.startswith("generation.")
}

_FIGURES = ("params_norm", "zero_gradients", "timers", "memory", "perplexity")
_OUTPUTS = {
    "checkpoint.save_safetensors": _speed("all its checkpoints are safetensors, of its own layout", True),
    "checkpoint.no_save_optim": _speed("its checkpoints always hold the optimizer", False),
    "checkpoint.no_save_rng": _speed("its checkpoints never hold random states", True),
    "checkpoint.optimizer_fully_reshardable": _speed("auto_trans_ckpt reshards what it saved", True),
    "checkpoint.exit_on_missing": _speed("a missing load_checkpoint always ends the run", True),
    "logging.wandb_project": _speed("it logs to files and TensorBoard"),
    "logging.wandb_name": _speed("it logs to files and TensorBoard"),
    **{f"logging.{name}": _speed("its monitors log other figures", False) for name in _FIGURES},
    "logging.timer_level": _speed("its monitors log other figures", 0),
    "checkpoint.strictness": _speed("it loads what it can and tells the rest"),
    "logging.throughput": _speed("MFLossMonitor always logs samples per second", True),
    "profiler.path": _speed("profiles go below output_dir"),
}

UNSUPPORTED: Mapping[str, Gap] = {
    **_TASK,
    **_LORA,
    **_MODEL,
    **_BATCH,
    **_PRECISION,
    **_KERNELS,
    **_PARALLEL,
    **_MEMORY,
    **_MOE,
    **_DATA,
    **_OUTPUTS,
    **_GENERATION,
}

_LAUNCHER = "read by the launcher alone"
_MSRUN = "part of the msrun command"
_MAPPED_CLUSTER = ("cluster.nodes", "cluster.devices_per_node")
IRRELEVANT: Mapping[str, str] = {
    **dict.fromkeys(("name", "runtime", "model.overridden"), _LAUNCHER),
    "fault_tolerance.timeout_minutes": "HCCL_EXEC_TIMEOUT in the environment of the launch",
    **{path: _LAUNCHER for path in field_paths() if path.startswith("cluster.") and path not in _MAPPED_CLUSTER},
    **dict.fromkeys(("cluster.master_addr", "cluster.master_port"), _MSRUN),
    **dict.fromkeys(("fault_tolerance.max_restarts", "fault_tolerance.hang_minutes"), _LAUNCHER),
    "kernels.manual_gc_interval": "the graph runs outside Python",
    **{f"backend.{name}": _LAUNCHER for name in ("name", "version", "args", "env")},
    **{f"rehearse.{name}": _LAUNCHER for name in ("entry", "shrink", "fake_world", "ranks", "max_processes")},
    **dict.fromkeys(("rules.strict", "rules.disable"), _LAUNCHER),
    **{path: "describes the machine" for path in field_paths() if path.startswith("hardware.")},
    **{path: _LAUNCHER for path in field_paths() if path.startswith(("estimate.", "search.", "imported."))},
}
