"""`launch diff`: what a job means on several backends, after their own defaults."""

from launcher.compose import compose
from launcher.mapping.backend import get_backend
from launcher.rules.effects import DEFAULT, NONE, WRITTEN, meaning
from tests.conftest import Launch


def test_written_values_and_the_backends_defaults_are_distinguished():
    job = compose(["+recipe=qwen3_moe", "backend=megatron"])
    found = meaning(job, get_backend("megatron"), "4.6.0").fields
    assert (found["batch.global_batch_size"].value, found["batch.global_batch_size"].how) == (256, WRITTEN)
    assert (found["data.num_workers"].value, found["data.num_workers"].how) == (4, DEFAULT)
    assert found["runtime"].how == NONE


def test_one_job_means_one_training_on_two_stacks(launch: Launch):
    """Of what changes training, only the start differs: the Ascend stack converts weights, which hold no optimizer."""
    done = launch("diff", "+recipe=qwen3_moe", "--backends", "megatron,mindspeed", "--json")
    assert done.code == 1
    training = {row["field"] for row in done.json["differences"] if row["changes_training"]}
    assert training <= {"checkpoint.no_load_optim", "checkpoint.no_load_rng"}
    assert "data.num_workers" in {row["field"] for row in done.json["differences"]}


def test_a_backend_does_not_differ_from_itself(launch: Launch):
    done = launch("diff", "+recipe=tiny_qwen3", "--backends", "megatron_lm,megatron_lm@0.16.1")
    assert done.code == 0
    assert "the same on" in done.out


def test_versions_differ_in_their_defaults(launch: Launch):
    done = launch("diff", "+recipe=qwen2_5_7b_sft", "--backends", "megatron@3.5,megatron@4.6")
    assert done.code == 1
    assert "megatron 3.5.3" in done.out


def test_bad_names_are_refused(launch: Launch):
    for names in ("megatron_lm,none", "megatron_lm", "megatron_lm,megatron@1"):
        done = launch("diff", "+recipe=tiny_qwen3", "--backends", names)
        assert done.code == 2, done
        assert "works:" in done.err


def test_an_override_for_each_side_is_refused_since_it_would_apply_to_both(launch: Launch):
    one, other = ("+recipe=tiny_qwen3", "backend=megatron"), ("+recipe=tiny_qwen3", "backend=mindspeed")
    done = launch("diff", *one, *other)
    assert (done.code, "works: --backends megatron,mindspeed" in done.err) == (2, True), done
    assert launch("diff", "+recipe=tiny_qwen3", "--backends", "megatron,mindspeed").code == 1
    done = launch("diff", "+recipe=tiny_qwen3", "parallel.tp=2", "+recipe=qwen3_8b", "parallel.tp=1")
    assert done.code == 2
    assert "apply to every side" in done.err


def test_arguments_without_a_field_say_what_they_do(launch: Launch, tmp_path):
    """Where a backend's table knows an argument, nobody is left with a question mark."""
    args = "megatron sft --model Qwen/Qwen3-8B --dataset d.jsonl --lr 1e-5 --train_iters 10"
    (tmp_path / "old.sh").write_text(f"{args} --loss_scale ignore_empty_think\n")
    (tmp_path / "new.sh").write_text(f"{args} --load_from_cache_file true\n")
    done = launch("diff", str(tmp_path / "old.sh"), str(tmp_path / "new.sh"))
    assert "backend.args.loss_scale *" in done.out
    assert "backend.args.loss_scale: weighs the loss of parts of an answer" in done.out
    assert "backend.args.load_from_cache_file: takes preprocessed data from the cache" in done.out
    assert "?" not in done.out
    rows = launch("diff", str(tmp_path / "old.sh"), str(tmp_path / "new.sh"), "--json").json["differences"]
    assert {row["field"]: row["changes_training"] for row in rows} == {
        "backend.args.loss_scale": True,
        "backend.args.load_from_cache_file": False,
    }


def test_words_that_are_no_file_are_told_from_backends(launch: Launch, tmp_path):
    assert "megatron is a backend, not a file or a job" in launch("diff", "megatron", "mindspeed").err
    (tmp_path / "train.sh").write_text("true\n")
    assert "works: train.sh" in launch("diff", "trian.sh", "train.sh").err
