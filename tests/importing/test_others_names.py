"""What launchers on top of Megatron-LM, torchrun and MindSpeed-LLM's scripts write differently."""

from pathlib import Path

import pytest

from launcher.importing.read_argv import read_argv
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.importing.roundtrip import lost, written

_SIZES = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128"
_ARGS = f"{_SIZES} --micro-batch-size 1 --train-iters 10 --lr 1e-4 --vocab-size 100 --data-path d"

# name: what is before the script, nodes and devices per node that are started.
PROCESSES = {
    "torchrun": ("torchrun", (1, 1)),
    "torchrun of two nodes": ("torchrun --nnodes 2 --master_addr a --master_port 29501", (2, 1)),
    "torchrun as a module": ("python -m torch.distributed.run", (1, 1)),
    "a number": ("torchrun --nproc_per_node 4", (1, 4)),
    "options that are not set": ("torchrun $OPTIONS", (1, 8)),
}


@pytest.mark.parametrize("case", PROCESSES)
def test_processes_that_a_launcher_starts(tmp_path: Path, case: str) -> None:
    """Torchrun starts one process per node without --nproc_per_node (torch/distributed/run.py)."""
    launcher, (nodes, devices) = PROCESSES[case]
    script = tmp_path / "run.sh"
    script.write_text(f"{launcher} pretrain_gpt.py {_ARGS} --tokenizer-type NullTokenizer\n")
    cluster = read_file(script, ImportOptions())[0].job.cluster
    assert (cluster.nodes, cluster.devices_per_node) == (nodes, devices)


_SETTINGS = """\
    num_layers: 2
    hidden_size: 64
    num_attention_heads: 4
    seq_length: 128
    max_position_embeddings: 128
    micro_batch_size: 1
    global_batch_size: 8
    train_iters: 10
"""
PRIMUS = f"""\
work_group: amd
modules:
  pre_trainer:
    framework: megatron
    overrides:
      tokenizer_type: ${{TOKENIZER:Llama3Tokenizer}}
      tokenizer_model: meta-llama/Llama-3.1-8B
{_SETTINGS.replace("    ", "      ")}"""
FLAGSCALE = f"""\
experiment:
  task: {{type: train, backend: megatron}}
  runner: {{nnodes: 1, nproc_per_node: 8}}
train:
  model:
{_SETTINGS}  data:
    tokenizer:
      tokenizer_type: QwenTokenizerFS
      tokenizer_path: Qwen/Qwen3-0.6B
"""


@pytest.mark.parametrize(("text", "path"), [(PRIMUS, "meta-llama/Llama-3.1-8B"), (FLAGSCALE, "Qwen/Qwen3-0.6B")])
def test_tokenizer_classes_of_launchers_on_top(tmp_path: Path, text: str, path: str) -> None:
    file = tmp_path / "train.yaml"
    file.write_text(text)
    found = read_file(file, ImportOptions())[0]
    assert (found.job.tokenizer.path, found.native.get("tokenizer-type")) == (path, "HuggingFaceTokenizer")
    assert any("is read as HuggingFaceTokenizer" in note.message for note in found.warnings)


_MOE = f"{_ARGS} --tokenizer-type NullTokenizer --num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 32"
# Arguments as scripts of MindSpeed-LLM have them: written in another form, they had the same effect.
AS_TYPED = {
    "sigmoid scores without --norm-topk-prob": "--moe-router-score-function sigmoid --moe-router-enable-expert-bias",
    "softmax without --norm-topk-prob": "--moe-router-load-balancing-type seq_aux_loss",
    "every layer as -1": "--first-k-dense-replace 1 --moe-layer-freq -1 --norm-topk-prob",
}


@pytest.mark.parametrize("case", AS_TYPED)
def test_arguments_of_mindspeed_come_back_as_they_were_typed(case: str) -> None:
    argv = f"{_MOE} {AS_TYPED[case]}".split()
    found = read_argv(argv, backend="mindspeed", version="26.1.0")
    after, _ = written(found.job, found.backend, found.version)
    given = {arg.flag: arg.value for arg in found.native}
    for flag in ("norm-topk-prob", "moe-layer-freq"):
        assert after.get(flag) in (given.get(flag), None), flag
        assert flag in given or flag not in after
    assert not lost(found)
