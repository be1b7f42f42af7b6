"""What launchers on top of Megatron-LM and torchrun write differently."""

from pathlib import Path

import pytest

from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file

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
