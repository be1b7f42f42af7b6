"""Data files of another form than the backend reads: what `check`, `dry-run` and `doctor` say of them, and where."""

import os
from pathlib import Path

import pytest

from launcher.compose import compose
from launcher.job.finding import Finding
from launcher.pipeline import judge
from launcher.rules.file_peek import peek
from tests.conftest import Launch
from tests.rules.data_samples import FILES, SWIFT_READS, token_files, write

SFT = ("+recipe=qwen3_8b_sft", "data.format=messages")
PRETRAIN = ("+recipe=qwen3_8b", "model.pretrained=false")
# What the recipe of ms-swift says of chats and Megatron-LM does not take.
PLAIN = ("data.template=null", "data.enable_thinking=null", "model.pretrained=false", "data.num_preprocess=null")


def found(*words: str) -> list[Finding]:
    return [each for each in judge(compose(words)).findings if each.rule == "DATA-FILE"]


def only(*words: str) -> Finding:
    (finding,) = found(*words)
    return finding


def works(finding: Finding) -> list[str]:
    return [str(fix) for fix in finding.fixes]


@pytest.mark.parametrize("name", FILES)
def test_ms_swift_refuses_what_it_does_not_read_and_nothing_else(name: str, tmp_path: Path) -> None:
    findings = found(*SFT, "backend=megatron", f"data.paths=[{write(tmp_path, name)}]")
    if name in SWIFT_READS:
        assert not [each for each in findings if each.severity == "error"], findings
    else:
        assert findings
        assert str(tmp_path / name) in findings[0].message


# backend, form of the job, file or "": token files, part of the message, what works.
CASES = {
    "ShareGPT, MindSpeed-LLM": (
        "mindspeed",
        SFT,
        "sharegpt.jsonl",
        "sharegpt.jsonl:1: ShareGPT's conversations (columns id, conversations); OpenAIInstructionHandler reads",
        ["backend.args.handler-name=SharegptStyleInstructionHandler"],
    ),
    "Alpaca, MindSpeed-LLM": (
        "mindspeed",
        SFT,
        "alpaca.jsonl",
        "Alpaca's instructions (columns instruction, input, output)",
        ["backend.args.handler-name=AlpacaStyleInstructionHandler"],
    ),
    "Alpaca without input, of which MindSpeed-LLM's handler needs the column": (
        "mindspeed",
        SFT,
        "alpaca_without_input.jsonl",
        "instruction and input become a message of the user, output one of the assistant",
        [],
    ),
    "texts where chats are meant": ("mindspeed", SFT, "texts.jsonl", "texts (column text)", []),
    "token files where chats are meant": (
        "mindspeed",
        SFT,
        "",
        "Megatron's token files (.bin and .idx); OpenAIInstructionHandler reads",
        ["data.format=megatron"],
    ),
    "ShareGPT, Megatron-LM": (
        "megatron_lm",
        (*SFT, *PLAIN),
        "sharegpt.jsonl",
        "conversations become messages, from and value become role and content, human and gpt become user",
        [],
    ),
    "ShareGPT's turns under the name messages": (
        "megatron_lm",
        (*SFT, *PLAIN),
        "sharegpt_in_messages.jsonl",
        "messages whose turns have from, value; Megatron-LM's --sft reads",
        [],
    ),
    "Parquet, which Megatron-LM's --sft does not read": (
        "megatron_lm",
        (*SFT, *PLAIN),
        "parquet.jsonl",
        "parquet.jsonl: a Parquet file; Megatron-LM's --sft reads JSONL of messages",
        [],
    ),
    "Python's text in place of JSON": (
        "megatron_lm",
        (*SFT, *PLAIN),
        "python.jsonl",
        "not JSON: expecting property name enclosed in double quotes (line 1, column 2)",
        [],
    ),
    "JSONL where token files are meant": (
        "megatron_lm",
        (*PRETRAIN, "data.format=megatron"),
        "texts.jsonl",
        "texts (column text); Megatron-LM reads prefixes of .bin and .idx pairs: tokenize it first",
        [],
    ),
    "JSONL where token files are meant, and a handler could tokenize it": (
        "mindspeed",
        (*PRETRAIN, "data.format=megatron"),
        "texts.jsonl",
        "texts (column text); MindSpeed-LLM without --handler-name reads prefixes",
        ["data.format=text"],
    ),
    "JSONL where token files are meant, MindFormers": (
        "mindformers",
        (*PRETRAIN, "data.format=megatron"),
        "texts.jsonl",
        "MindFormers reads prefixes of .bin and .idx pairs",
        [],
    ),
    "chats where token numbers are meant": (
        "mindformers",
        ("+recipe=qwen3_8b_sft", "data.format=tokenized", "data.template=null", "data.enable_thinking=null"),
        "chats.jsonl",
        "chats (column messages); MindFormers reads JSONL of input_ids and labels, written by launch tokenize",
        [],
    ),
    "an empty file": ("megatron_lm", (*PRETRAIN, "data.format=megatron"), "empty.jsonl", "an empty file", []),
}


@pytest.mark.parametrize("case", CASES)
def test_another_form_is_an_error_with_what_works(case: str, tmp_path: Path) -> None:
    backend, words, name, message, offered = CASES[case]
    path = write(tmp_path, name) if name else token_files(tmp_path)
    finding = only(*words, f"backend={backend}", f"data.paths=[{path}]")
    assert finding.severity == "error"
    assert finding.fields == ("data.paths", "data.format")
    assert message in finding.message
    assert works(finding) == offered
    for override in offered:
        assert found(*words, f"backend={backend}", f"data.paths=[{path}]", override) == []


def test_one_file_of_a_pair_of_token_files_is_not_their_prefix(tmp_path: Path) -> None:
    prefix = token_files(tmp_path)
    words = (*PRETRAIN, "backend=megatron_lm", "data.format=megatron")
    assert found(*words, f"data.paths=[{prefix}]") == []
    finding = only(*words, f"data.paths=[0.5,{prefix}.bin,0.5,{tmp_path}/absent]")
    assert works(finding) == [f"data.paths=[0.5,{prefix},0.5,{tmp_path}/absent]"]


def test_without_a_handler_mindspeed_tokenizes_texts_by_its_own_tokenizer_class(tmp_path: Path) -> None:
    words = (*PRETRAIN, "backend=mindspeed", "data.format=megatron", "tokenizer.type=PretrainedFromHF")
    assert found(*words, f"data.paths=[{write(tmp_path, 'texts.jsonl')}]") == []
    assert found(*words, f"data.paths=[{token_files(tmp_path)}]") == []
    assert works(only(*words, f"data.paths=[{tmp_path}/tokens.bin]")) == [f"data.paths=[{tmp_path}/tokens]"]
    assert "chats (column messages)" in only(*words, f"data.paths=[{write(tmp_path, 'chats.jsonl')}]").message
    assert only(*words, "backend.version=2.2.0", f"data.paths=[{tmp_path}/texts.jsonl]")


def test_a_folder_is_no_prefix_and_the_only_pair_in_it_is_named(tmp_path: Path) -> None:
    words = (*PRETRAIN, "backend=megatron_lm", "data.format=megatron", f"data.paths=[{tmp_path}]")
    assert "an empty folder; Megatron-LM reads prefixes" in only(*words).message
    prefix = token_files(tmp_path)
    assert works(only(*words)) == [f"data.paths=[{prefix}]"]


def test_what_the_user_maps_is_not_judged(tmp_path: Path) -> None:
    words = (*SFT, f"data.paths=[{write(tmp_path, 'unknown_columns.jsonl')}]")
    assert found(*words, "backend=megatron")
    assert found(*words, "backend=megatron", "backend.args.columns={foo:query,bar:response}") == []
    assert found(*words, "backend=mindspeed")
    assert found(*words, "backend=mindspeed", "backend.args.map-keys={messages:foo}") == []


def test_several_files_of_one_form_are_one_finding(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(3)]
    for folder in folders:
        folder.mkdir()
    paths = [str(write(folder, "unknown_columns.jsonl")) for folder in folders]
    finding = only(*SFT, "backend=megatron", f"data.paths=[{','.join(paths)}]")
    assert finding.message.startswith(f"{paths[0]}:1 (and 2 more): records with the columns foo, bar; ms-swift reads")


def test_pipes_devices_and_what_is_not_here_are_not_touched(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    for path in (pipe, "/dev/zero", tmp_path / "nothing.jsonl", "hub/name", "s3://bucket/x.jsonl"):
        assert found(*SFT, "backend=mindspeed", f"data.paths=['{path}']") == []


def test_of_a_large_file_the_beginning_is_read(tmp_path: Path) -> None:
    large = tmp_path / "large.jsonl"
    with large.open("wb") as stream:
        stream.write(b'{"instruction": "a", "input": "", "output": "')
        stream.truncate(1 << 40)  # a terabyte of zeros
    read = peek(str(large))
    assert read is not None
    assert read.kind == "binary"


def test_on_other_machines_it_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, "texts.jsonl")
    finding = only(*SFT, "backend=mindspeed", "cluster=slurm", f"data.paths=[{path}]")
    assert finding.severity == "warning"
    assert "the nodes may have another" in finding.message


def test_files_on_volumes_of_the_pods_are_not_this_machines(tmp_path: Path) -> None:
    path = write(tmp_path, "texts.jsonl")
    volume = f"cluster.volumes=['pvc:data:{tmp_path}']"
    words = (*SFT, "backend=mindspeed", "cluster=kubernetes", f"data.paths=[{path}]")
    assert found(*words)
    assert found(*words, volume) == []


def test_it_can_be_disabled(tmp_path: Path) -> None:
    words = (*SFT, "backend=megatron", f"data.paths=[{write(tmp_path, 'unknown_columns.jsonl')}]")
    findings = judge(compose([*words, "rules.disable=[DATA-FILE]"])).findings
    assert [each.message for each in findings] == ["DATA-FILE is disabled by rules.disable"]


@pytest.mark.parametrize("verb", ["check", "dry-run", "doctor", "run"])
def test_every_verb_says_the_same(verb: str, launch: Launch, tmp_path: Path) -> None:
    path = write(tmp_path, "sharegpt.jsonl")
    done = launch(
        verb, *SFT, "backend=mindspeed", f"data.paths=[{path}]", f"output_dir={tmp_path}/out", env={"COLUMNS": "400"}
    )
    assert done.code == 1
    assert "error DATA-FILE  data.paths=" in done.out + done.err
    assert f"{path}:1: ShareGPT's conversations (columns id, conversations)" in done.out + done.err
    assert "works: backend.args.handler-name=SharegptStyleInstructionHandler" in done.out + done.err


def test_what_works_is_part_of_what_check_fixes(launch: Launch, tmp_path: Path) -> None:
    words = (*SFT, "backend=mindspeed", f"data.paths=[{write(tmp_path, 'sharegpt.jsonl')}]", "parallel.tp=3")
    done = launch("check", *words, "--fix", "-o", f"{tmp_path}/fixes.yaml")
    assert "backend.args.handler-name=SharegptStyleInstructionHandler" in done.out.partition("fixes: ")[2]
    fixed = [word for word in words if word != "parallel.tp=3"]
    assert launch("check", *fixed, f"+strategy={tmp_path}/fixes.yaml").code == 0


def test_doctor_shows_doubts(launch: Launch, tmp_path: Path) -> None:
    done = launch("doctor", *SFT, "backend=megatron", f"data.paths=[{write(tmp_path, 'chats.txt')}]")
    assert "JSON in a file that is read as" in done.out


def test_a_rehearsal_refuses_what_its_trainer_does_not_read_before_it_starts(launch: Launch, tmp_path: Path) -> None:
    path = write(tmp_path, "sharegpt.jsonl")
    words = (*SFT, "backend=megatron", "runtime=rehearsal", "rehearse.shrink=true", "rehearse.entry=core")
    done = launch("run", *words, f"data.paths=[{path}]", f"output_dir={tmp_path}/out", env={"COLUMNS": "400"})
    assert done.code == 1
    assert f"{path}:1: ShareGPT's conversations (columns id, conversations); the embedded trainer reads" in done.err
    assert not (tmp_path / "out" / "logs").exists()


@pytest.mark.parametrize("name", ["array.json", "one_record.json", "gzip.jsonl", "preferences.jsonl", "chats.jsonl"])
def test_what_rewrites_pairs_reads_lines_of_pairs(name: str, tmp_path: Path) -> None:
    words = ("+recipe=qwen3_8b_dpo", "backend=mindspeed", "data.format=messages")
    assert "what rewrites preference pairs reads" in only(*words, f"data.paths=[{write(tmp_path, name)}]").message


def test_a_script_is_judged_by_its_handler(launch: Launch, tmp_path: Path) -> None:
    path = write(tmp_path, "texts.jsonl")
    shown = launch(
        "dry-run", *PRETRAIN, "backend=megatron_lm", "data.format=megatron", "data.paths=[x]", "--format", "shell"
    )
    script = tmp_path / "train.sh"
    script.write_text(shown.out.replace("--data-path x", f"--data-path {path}"), encoding="utf-8")
    done = launch("check", str(script), env={"COLUMNS": "400"})
    assert done.code == 1
    assert f"{path}:1: texts (column text); Megatron-LM reads prefixes of .bin and .idx pairs" in done.out


def test_a_loader_of_the_users_own_code_is_not_judged(tmp_path: Path) -> None:
    words = (*PRETRAIN, "backend=megatron_lm", "data.format=megatron", f"data.paths=[{write(tmp_path, 'texts.jsonl')}]")
    assert found(*words)
    assert found(*words, "data.order=external") == []
