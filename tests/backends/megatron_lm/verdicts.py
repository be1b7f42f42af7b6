"""Our verdict and the real one of Megatron-LM's and MindSpeed-LLM's checks on drawn command lines; what may differ."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from launcher.mapping.backend import get_backend
from tests.backends.megatron_lm import fuzzed, rule_cases
from tests.backends.mutated import Line
from tests.backends.users_path import UsersPath, reasons, torchrun_script, version_words
from tests.backends.verdicts import Validator, Verdict, ask

ENVIRONMENT = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
CHILDREN = {
    "megatron_lm": Path(__file__).with_name("rules_child.py"),
    "mindspeed": Path(__file__).parents[1] / "mindspeed" / "parser_child.py",
}
# Rules whose fault parser, validate_args and the configuration do not see, and where it shows.
LATER = {
    "ARG-BOUND": "in the first forward pass, or never: a size of nothing",
    "BATCH-GLOBAL": "when micro-batches are counted (num_microbatches_calculator.py)",
    "BATCH-VPP": "when the schedule starts",
    "DATA-FILE": "when the data set is read",
    "LR-WARMUP-LENGTH": "when the scheduler is built (optimizer_param_scheduler.py)",
    "MLM-CP-COMM-NAMES": "in the first forward pass (Transformer Engine)",
    "MLM-DP-OUTERMOST": "when process groups are made (parallel_state.py)",
    "MLM-MUON-COEFFICIENTS": "when the optimizer is built, or in its first step",
    "MLM-OPT-INSTANCES": "when process groups are made (parallel_state.py)",
    "MLM-OPT-INSTANCES-ALONE": "when gradients get their buffers (distributed_data_parallel.py)",
    "MLM-OPT-INSTANCES-EP": "when process groups are made (parallel_state.py)",
    "MLM-OPT-INSTANCES-EXPERTS": "when gradients get their buffers (distributed_data_parallel.py)",
    "MLM-RAMPUP-NUMBERS": "when micro-batches are counted (num_microbatches_calculator.py)",
    "MLM-RAMPUP-RANKS": "when micro-batches are counted (num_microbatches_calculator.py)",
    "MLM-RAMPUP-STEPS": "when micro-batches are counted (num_microbatches_calculator.py)",
    "MLM-SFT-PROMPT": "when the tokenizer is built",
    "MLM-GDN-PATTERN": "when the model is built (experimental_attention_variant_module_specs.py)",
    "MLM-MOE-PATTERN": "when the model is built (gpt_layer_specs.py)",
    "MLM-VARIANT-TE": "when the model is built (experimental_attention_variant_module_specs.py)",
    "MLM-WINDOW-PATTERN": "in the first forward pass (transformer/utils.py)",
    "MLM-UNEVEN-NO-MIDDLE": "with --tp-2d, whose configuration checks less, when layers are counted",
    "MOE-EP-EXPERTS": "when the model is built (moe_layer.py:101)",
    "MOE-TOPK": "in the first forward pass",
    "MOE-TP-SP": "in the first forward pass (moe_layer.py:379)",
    "PAR-EXPERT-WORLD": "when process groups are made (parallel_state.py:793)",
    "PAR-PP-LAYERS": "when the model is built (transformer_block.py:155)",
    "PAR-SP-SEQ": "in the first forward pass",
    "PAR-TP-FFN": "when the model is built (tensor_parallel/utils.py)",
    "PAR-UNEVEN-PP": "never in 0.13 to 0.15: the only stage gets that many layers (transformer_block.py)",
    "REQ-BATCH": "in the first forward pass: a sequence has a length",
    "REQ-LR": "when the scheduler is built (optimizer_param_scheduler.py)",
    "REQ-LENGTH": "never: training has no end, or none at all",
    "REQ-MODEL": "when the model is built: a model has a width",
    "SENSE-HEADS": "when the model is built: query groups are of one size",
    "SENSE-SHARES": "when the optimizer is built, or never",
    "SENSE-VOCAB": "in the first forward pass: a token beyond the last row",
    "MS-MOE-FREQ-LIST": "when the model is built",
    "MS-LORA-NAMES": "when adapters are attached (peft)",
    "MS-RC-SWAP-MODULES": "when the model is built",
}
# What the machine decides, not the command line: files, packages, the environment.
MACHINE = (
    "NCCL_ALGO",
    "NCCL_GRAPH_REGISTER",
    "No such file",
    "resiliency",
    "multistorageclient",
    "flashinfer",
    "nvidia_modelopt",
    "check load dir",
    "retro config",
    "_infer_parameter_dtype",  # --ai-framework mindspore imports MindSpore's own transformers
)


def validator(
    backend: str,
    arguments: Sequence[str] = (),
    *,
    python: str = "",
    env: Mapping[str, str] | None = None,
    title: str = "",
    cache: Path | None = None,
    workers: int = 1,
) -> Validator:
    """Return the program that asks upstream's own checks.

    Args:
        arguments: of the program, such as the checkout.
        python: its interpreter; empty: this one.
        env: variables that name checkouts, where they are not those of this process.
    """
    command = (python or sys.executable, str(CHILDREN[backend]), *arguments, "each")
    variables = {"USE_TF": "FALSE", **(env or {})}
    return Validator(command=command, env=variables, title=title, cache=cache, workers=workers)


def compare(
    backend: str, version: str, cases: Sequence[tuple[bool, str]], path: UsersPath, program: Validator
) -> list[Verdict]:
    """Judge command lines by `launch check` and by the real checks.

    Args:
        cases: on the MoE base or the dense one, and the changes of it.
    """
    lines = [_line(backend, version, changes, moe=moe) for moe, changes in cases]
    answers = ask(program, [{"argv": list(line.argv), "world_size": line.world_size} for line in lines])
    args = version_words(backend, version)
    ours = [path.script(torchrun_script(line), *args).errors for line in lines]
    return [
        Verdict(
            name=line.name, ours=refused, real=answer or None, later=reasons(refused, version, LATER), machine=MACHINE
        )
        for line, refused, answer in zip(lines, ours, answers, strict=True)
    ]


def drawn(backend: str, version: str, count: int, seed: int) -> list[tuple[bool, str]]:
    """Return every argument alone, every corner, and `count` mixtures; where a start takes seconds only mixtures."""
    every = list(fuzzed.lines(get_backend(backend).catalogue(version), count, seed))
    return every[-count:] if backend == "mindspeed" else every


def _line(backend: str, version: str, changes: str, *, moe: bool) -> Line:
    argv = rule_cases.argv_of(rule_cases.values(get_backend(backend), version, changes, moe=moe))
    name = f"{'moe' if moe else 'dense'} {changes}"
    # Every example of MindSpeed-LLM sets such a variable; without a sign of it a script may be Megatron-LM's.
    sign = {"HCCL_CONNECT_TIMEOUT": "1800"} if backend == "mindspeed" else {}
    return Line(name=name, argv=tuple(argv), world_size=rule_cases.WORLD, env={**ENVIRONMENT, **sign})
