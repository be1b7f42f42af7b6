"""YAML by the names under which Megatron's parser stores its arguments: `--yaml-cfg`, dumps, FlagScale's sections."""

from pathlib import Path

import pytest

from launcher.api import ImportRefused, check, compose, import_file

# As examples/gpt3/gpt_config.yaml of Megatron-LM, shortened.
YAML_CFG = """
language_model:
  num_layers: 24
  hidden_size: 1024
  num_attention_heads: 16
  num_query_groups: null
  layernorm_epsilon: 1.e-5
  add_bias_linear: False
  apply_rope_fusion: False
  activation_func: swiglu
  num_moe_experts: null
  init_method: null
model_parallel:
  tensor_model_parallel_size: 2
  sequence_parallel: True
  overlap_p2p_comm: True
  bf16: True
  batch_p2p_comm: True
micro_batch_size: 2
global_batch_size: 128
rampup_batch_size: [32, 32, 65324160]
data_path: 0.3 a 0.7 b
position_embedding_type: rope
untie_embeddings_and_output_weights: True
train_samples: 1000
lr: 2.5e-4
"""


def test_a_file_of_stored_names(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(YAML_CFG)
    found = import_file(tmp_path / "x.yaml")
    job = found.job
    assert (found.backend, job.model.num_hidden_layers, job.parallel.tp) == ("megatron_lm", 24, 2)
    assert (job.model.hidden_act, job.model.linear_bias, job.model.tie_word_embeddings) == ("silu", False, False)
    assert (job.kernels.rope_fusion, job.precision.dtype, job.data.paths) == (False, "bf16", ("0.3", "a", "0.7", "b"))
    assert job.batch.rampup_batch_size == (32, 32, 65324160)
    assert [note.message for note in found.warnings if "dropped" in note.message] == [
        "batch_p2p_comm is unknown to Megatron-LM: dropped"
    ]


def test_a_script_that_names_such_a_file(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(YAML_CFG)
    (tmp_path / "x.sh").write_text("torchrun --nproc_per_node 4 pretrain_gpt.py --lr 1 --yaml-cfg x.yaml\n")
    found = import_file(tmp_path / "x.sh")
    assert (found.job.optimizer.lr, found.job.cluster.devices_per_node) == (2.5e-4, 4)
    assert any("--lr dropped: the file of --yaml-cfg" in note.message for note in found.warnings)


def test_a_misspelt_name_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(YAML_CFG.replace("train_samples", "train_sampels"))
    works = [note.works for note in import_file(tmp_path / "x.yaml").warnings if "train_sampels" in note.message]
    assert works == [("train-samples",)]


REFUSED = {
    "a file composed of others": ("defaults: [{train: 7b}]\nexperiment: {name: x}\n", "named in its `defaults`"),
    "somebody else's settings": (
        "model_name_or_path: m\nstage: sft\ncutoff_len: 1\nlearning_rate: 1\ndeepspeed: x\n",
        "it belongs to LLaMA-Factory, which is none of the backends",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_files_are_refused(tmp_path: Path, case: str) -> None:
    text, reported = REFUSED[case]
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(ImportRefused, match=reported):
        import_file(tmp_path / "x.yaml")


def test_a_key_given_twice_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("model: m\nlr: 1e-5\ndataset: d\nlr: 2e-5\n")
    (tmp_path / "x.sh").write_text("megatron sft x.yaml\n")
    for name in ("x.yaml", "x.sh"):
        found = import_file(tmp_path / name)
        assert found.job.optimizer.lr == 2e-5
        twice = [note.where for note in found.warnings if note.message.startswith("lr is given twice")]
        assert [place.rpartition(":")[2] for place in twice] == ["4"], name


@pytest.mark.parametrize("value", ["$STEPS", "abc", "$(echo 1)"])
def test_text_in_place_of_a_number_is_judged_without_a_crash(value: str) -> None:
    job = compose(["backend=megatron_lm", "schedule.train_iters=9", f"backend.args.lr-warmup-iters='{value}'"])
    assert any(found.rule == "ARG-VALUE" for found in check(job))
