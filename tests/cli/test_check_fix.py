"""`launch check --fix` and `launch check FILE`, as a user types them."""

from pathlib import Path

BROKEN = ("check", "+recipe=qwen3_moe", "backend=megatron", "parallel.ep=3")


def test_fix_prints_overrides_with_which_the_job_passes(launch):
    result = launch(*BROKEN, "--fix", "--json")
    assert result.code == 1
    overrides = result.json["fixed"]["overrides"]
    assert overrides
    assert result.json["fixed"]["left"] == []
    assert launch("check", "+recipe=qwen3_moe", "backend=megatron", *overrides).code == 0


def test_fix_writes_a_file_that_the_next_command_takes(launch, tmp_path):
    written = tmp_path / "fixes.yaml"
    result = launch(*BROKEN, "--fix", "-o", str(written))
    assert "fixes: parallel.ep=" in result.out
    assert "parallel:" in written.read_text()
    assert launch("check", "+recipe=qwen3_moe", "backend=megatron", f"+strategy={written}").code == 0


def test_an_output_without_fix_is_a_wrong_command_line(launch):
    result = launch("check", "+recipe=qwen3_moe", "-o", "x.yaml")
    assert result.code == 2
    assert "works:" in result.err


def test_a_script_that_exists_is_judged_as_it_is_written(launch, tmp_path):
    script = tmp_path / "train.sh"
    script.write_text(
        "NPROC_PER_NODE=4 megatron sft --model Qwen/Qwen3-8B --dataset a --tensor_model_parallel_size 8 "
        "--lazy_tokenize true --packing true --train_iters 10\n"
    )
    result = launch("check", str(script), "--json")
    assert result.code == 1
    assert {"PAR-WORLD", "SW-LAZY-PACKING"} <= {finding["rule"] for finding in result.json["findings"]}


def test_explain_lists_the_rules_of_a_field(launch):
    result = launch("explain", "checkpoint.save_total_limit", "--json")
    assert "SW-SAVE-LIMIT" in {rule["rule"] for rule in result.json["rules"]}


def test_faults_of_a_script_come_with_what_would_work(launch, tmp_path):
    script = tmp_path / "train.sh"
    script.write_text(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 256 --num-attention-heads 8 "
        "--seq-length 128 --max-position-embeddings 128 --micro-batch-size 1 --global-batch-size 12 --train-iters 10 "
        "--lr 1e-5 --min-lr 1e-3 --bf16 --tokenizer-type NullTokenizer --vocab-size 511 --mock-data --eval-iters 0\n",
        encoding="utf-8",
    )
    result = launch("check", str(script))
    assert result.code == 1
    assert "works: optimizer.min_lr=1e-06" in result.out
    assert "batch.global_batch_size=16" in result.out


def test_several_faults_are_mended_together_and_training_stays(launch, tmp_path):
    job = ("check", "+recipe=qwen3_8b", "backend=megatron")
    faults = ("parallel.tp=16", "parallel.vpp=7", "batch.micro_batch_size=3")
    fixes = str(tmp_path / "fixes.yaml")
    fixed = launch(*job, *faults, "--fix", "-o", fixes, "--json").json["fixed"]
    assert (fixed["left"], fixed["affects_training"], fixed["ask"]) == ([], [], [])
    assert launch(*job, f"+strategy={fixes}").code == 0


def test_what_changes_training_is_named(launch):
    result = launch("check", "+recipe=qwen3_8b", "backend=megatron", "optimizer.min_lr=1.0", "--fix")
    assert "(changes training)" in result.out
    assert "changes training: optimizer.min_lr" in result.out


def test_what_only_the_user_knows_is_asked_for(launch):
    args = ("check", "+recipe=qwen3_8b", "backend=megatron", "schedule.train_iters=null", "parallel.tp=3", "--fix")
    result = launch(*args)
    assert "specify: schedule.train_iters=N" in result.out
    assert "fixes: parallel.tp=4" in result.out
    assert launch(*args[:3], "parallel.tp=4", "schedule.train_iters=10").code == 0


def test_devices_that_a_script_does_not_say_are_asked_for(launch, tmp_path):
    script = tmp_path / "train.sh"
    script.write_text(
        "torchrun --nnodes $WORLD_SIZE --nproc_per_node $GPUS pretrain_gpt.py --tensor-model-parallel-size 3 "
        "--num-layers 8 --hidden-size 384 --num-attention-heads 12 --seq-length 128 --max-position-embeddings 128 "
        "--micro-batch-size 1 --global-batch-size 12 --train-iters 10 --lr 1e-5 --min-lr 1e-6 --bf16 "
        "--tokenizer-type NullTokenizer --vocab-size 511 --mock-data\n",
        encoding="utf-8",
    )
    result = launch("check", str(script), "--fix", "--json")
    assert {finding["rule"] for finding in result.json["findings"] if finding["severity"] == "error"} == {"PAR-WORLD"}
    assert result.json["fixed"]["ask"] == ["cluster.nodes=N", "cluster.devices_per_node=N"]
    assert result.json["fixed"]["overrides"] == []
    assert launch("check", str(script), "cluster.nodes=1", "cluster.devices_per_node=6").code == 0


def test_an_unset_variable_of_an_imported_script_is_asked_for_and_what_is_typed_is_taken(launch, tmp_path):
    script, job = tmp_path / "train.sh", tmp_path / "job.yaml"
    script.write_text(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 256 --num-attention-heads 8 "
        "--seq-length $SEQ --max-position-embeddings 128 --micro-batch-size $MBS --global-batch-size 16 "
        "--train-iters 10 --lr 1e-5 --bf16 --tokenizer-type HuggingFaceTokenizer --tokenizer-model $TOKENIZER "
        "--data-path x --eval-iters 0 --adam-eps $EPS --rerun-mode $MODE "
        "--distributed-timeout-seconds-after-init $TIMEOUT\n",
        encoding="utf-8",
    )
    launch("import", str(script), "-o", str(job))
    result = launch("check", f"+job={job}", "--fix", "--json")
    findings = {finding["fields"][0]: finding for finding in result.json["findings"] if finding["severity"] == "error"}
    asked = {path.removeprefix("backend.args."): (each["fix"], each["ask"]) for path, each in findings.items()}
    assert asked == {
        "adam-eps": ([], ["optimizer.adam_eps=X"]),
        "micro-batch-size": ([], ["batch.micro_batch_size=N"]),
        "rerun-mode": ([], ["fault_tolerance.rerun=NAME"]),
        "distributed-timeout-seconds-after-init": ([], ["backend.args.distributed-timeout-seconds-after-init=N"]),
        "seq-length": ([], ["batch.seq_length=N"]),
        "batch.micro_batch_size": ([], ["batch.micro_batch_size=N"]),
        "batch.seq_length": ([], ["batch.seq_length=N"]),
    }
    assert result.json["fixed"]["overrides"] == []
    known = ("optimizer.adam_eps=1e-8", "batch.micro_batch_size=1", "batch.seq_length=64")
    typed = (*known, "fault_tolerance.rerun=disabled", "backend.args.distributed-timeout-seconds-after-init=5")
    assert launch("check", f"+job={job}", *typed).code == 0
    assert "specify: model.vocab_size=N" in launch("estimate", f"+job={job}", *typed).err


def test_a_key_of_a_file_that_is_refused_has_the_offer_of_its_job(launch):
    file = str(Path(__file__).parents[1] / "importing" / "data" / "mindformers_qwen3.yaml")
    [error] = [each for each in launch("check", file, "--json").json["findings"] if each["severity"] == "error"]
    [works] = error["fix"]
    assert works.startswith("backend.args.recompute_config.recompute_slice_activation=null")
    assert launch("check", file, *works.split()).code == 0
