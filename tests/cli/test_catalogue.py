"""`launch catalogue` and `launch import --source`: forks as versions of their backend."""

import json
import os
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from launcher.catalogue.user import VARIABLE
from launcher.cli.dispatch import dispatch
from launcher.mapping.backend import UnknownVersion, forget_forks, get_backend
from tests.catalogue import fork_checkouts

OURS = "--z-loss-weight 0.001 --our-schedule two --use-z-loss --tensor-model-parallel-size 2"


@pytest.fixture(autouse=True)
def own_catalogues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Keep forks in a folder of the test, and forget them after it."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "catalogues"))
    monkeypatch.chdir(tmp_path)
    forget_forks()
    yield
    forget_forks()


@pytest.fixture
def checkout(tmp_path: Path) -> str:
    return str(fork_checkouts.fork(tmp_path / "our-fork"))


def script(more: str = OURS, program: str = "pretrain_gpt.py") -> str:
    Path("train.sh").write_text(fork_checkouts.SCRIPT.format(program=program, more=more))
    return "train.sh"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = dispatch(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def tree(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    code, out, err = run(capsys, *words, "--json")
    assert (code, err) == (0, ""), err
    return json.loads(out)


def test_a_fork_is_a_version_of_its_backend(capsys: pytest.CaptureFixture[str], checkout: str) -> None:
    added = tree(capsys, "catalogue", "add", checkout, "--name", "ours")
    assert (added["backend"], added["version"]) == ("megatron_lm", f"{added['like']}+ours")
    assert added["new"] == ["our-schedule", "ours", "use-z-loss", "z-loss-weight"]
    assert "seed" in added["missing"]
    assert [fork["name"] for fork in tree(capsys, "catalogue", "list")["forks"]] == ["ours"]
    (argument,) = tree(capsys, "args", "megatron_lm", "--backend-version", "ours", "z-loss-weight")["arguments"]
    assert (argument["type"], argument["default"], argument["help"]) == ("float", 1e-4, "Weight of the z-loss.")
    official = set(tree(capsys, "explain", "parallel.tp", "--backend", "megatron_lm"))
    assert official
    run(capsys, "catalogue", "remove", "ours")
    assert tree(capsys, "catalogue", "list") == {"forks": [], "broken": {}}
    with pytest.raises(UnknownVersion, match="launch catalogue add DIR --name ours --like megatron_lm@"):
        get_backend("megatron_lm").version(added["version"])


@pytest.mark.parametrize(
    ("version", "command"),
    [("0.16.1+ours", "--name ours --like megatron_lm@0.16.1"), ("ours", "--name ours"), ("0.16.1", None)],
)
def test_a_job_of_a_removed_fork_has_one_error_that_says_how_to_add_it(
    capsys: pytest.CaptureFixture[str], checkout: str, version: str, command: str | None
) -> None:
    words = ("--source", checkout, "--name", "ours", "--like", "megatron_lm@0.16.1", "-o", "job.yaml")
    assert run(capsys, "import", script(), *words)[0] == 0
    run(capsys, "catalogue", "remove", "ours")
    code, out, _ = run(capsys, "check", "+job=job.yaml", f"backend.version={version}", "--json")
    errors = [each for each in json.loads(out)["findings"] if each["severity"] == "error"]
    if command is None:  # a release: the arguments of the fork are errors of their own
        assert code == 1
        assert {"ARG-UNKNOWN", "PORT-LEFT-OUT"} <= {each["rule"] for each in errors}
        return
    assert (code, [each["rule"] for each in errors]) == (2, ["REQ-BACKEND"])
    assert errors[0]["ask"] == [f"launch catalogue add DIR {command}"]
    assert errors[0]["fix"] == [], "no version has the arguments of the fork"


def test_the_source_of_a_port_that_is_a_removed_fork_is_named(
    capsys: pytest.CaptureFixture[str], checkout: str
) -> None:
    words = ("--source", checkout, "--name", "ours", "--like", "megatron_lm@0.16.1", "-o", "job.yaml")
    run(capsys, "import", script(), *words)
    run(capsys, "catalogue", "remove", "ours")
    out = run(capsys, "check", "+job=job.yaml", "backend=mindspeed", "--json")[1]
    (found,) = (each for each in json.loads(out)["findings"] if each["fields"] == ["imported.version"])
    assert found["ask"] == ["launch catalogue add DIR --name ours --like megatron_lm@0.16.1"]
    # The release does not know the fork's own options, which would have to be accepted one by one.
    assert found["fix"] == []


def test_mapped_options_stay_mapped_and_unknown_ones_are_typed(
    capsys: pytest.CaptureFixture[str], checkout: str
) -> None:
    found = tree(capsys, "import", script(), "--source", checkout, "--name", "ours")
    assert found["version"].endswith("+ours")
    fields = {each["flag"]: each["fields"] for each in found["args"]}
    assert fields["tensor-model-parallel-size"] == ["parallel.tp"]
    assert fields["num-layers"] == ["model.num_hidden_layers"]
    passed = found["job"]["backend"]["args"]
    assert {name: passed[name] for name in ("z-loss-weight", "our-schedule", "use-z-loss")} == {
        "z-loss-weight": 0.001,
        "our-schedule": "two",
        "use-z-loss": True,
    }


def test_the_job_gives_the_same_arguments_again(capsys: pytest.CaptureFixture[str], checkout: str) -> None:
    assert run(capsys, "import", script(), "--source", checkout, "--name", "ours", "-o", "job.yaml")[0] == 0
    code, out, err = run(capsys, "dry-run", "+job=job.yaml", "--format", "argv")
    assert code == 0, err
    written = [word for word in out.partition("pretrain_gpt.py")[2].split() if word.startswith("--")]
    given = fork_checkouts.SCRIPT.format(program="pretrain_gpt.py", more=OURS).split()
    start = given.index("--num-layers")
    options = [word for word in given[start:] if word.startswith("--")]
    assert set(options) <= set(written)
    assert not {"--seed", "--weight-decay", "--use-mcore-models"} & set(written)


def test_an_entry_script_of_the_fork_is_started(capsys: pytest.CaptureFixture[str], checkout: str) -> None:
    run(capsys, "catalogue", "add", checkout, "--name", "ours")
    file = script(f"{OURS} --ours 4", "pretrain_ours.py")
    assert run(capsys, "import", file, "-o", "job.yaml")[0] == 0
    code, out, _ = run(capsys, "dry-run", "+job=job.yaml", "--format", "argv")
    assert (code, '/pretrain_ours.py" --' in out.replace("\\\n    ", "")) == (0, True)


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("backend.args.our-schedule=three", "must be one of one, two"),
        ("backend.args.no-such=1", "no-such is not an argument"),
        ("optimizer.weight_decay=0.3", "has no --weight-decay"),
    ],
)
def test_the_fork_s_own_parser_decides(
    capsys: pytest.CaptureFixture[str], checkout: str, override: str, text: str
) -> None:
    assert run(capsys, "import", script(), "--source", checkout, "--name", "ours", "-o", "job.yaml")[0] == 0
    code, out, err = run(capsys, "check", "+job=job.yaml", override)
    assert (code, text in out + err) == (1, True), out + err


def test_a_spelling_with_underscores_stays_mapped(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = fork_checkouts.FORK.replace("--tensor-model-parallel-size", "--tensor_model_parallel_size")
    folder = fork_checkouts.write(tmp_path / "spelled", megatron__arguments=text)
    file = script("--tensor_model_parallel_size 2")
    found = tree(capsys, "import", file, "--source", str(folder))
    assert found["version"].endswith("+spelled")
    assert {"tensor_model_parallel_size": ["parallel.tp"]}.items() <= {
        each["flag"]: each["fields"] for each in found["args"]
    }.items()
    assert run(capsys, "import", file, "--backend-version", "spelled", "-o", "job.yaml")[0] == 0
    assert "--tensor_model_parallel_size 2" in run(capsys, "dry-run", "+job=job.yaml", "--format", "argv")[1]


def test_without_the_checkout_unknown_options_are_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "import", script())
    assert (code, out) == (1, "")
    assert err.count("error") == 1
    assert "options are not arguments of Megatron-LM" in err
    assert all(f"{option} " in err for option in ("--z-loss-weight 0.001", "--our-schedule two", "--use-z-loss"))
    assert "train.sh:6" in err
    assert "--source DIR: the checkout" in err
    assert "--partial: the rest" in err
    code, out, _ = run(capsys, "import", "train.sh", "--partial", "--json")
    assert (code, json.loads(out)["job"]["backend"]["args"]["our-schedule"]) == (1, "two")


# name: words, what is said; CHECKOUT stands for the checkout.
BAD = {
    "no folder": (("add", "nosuch", "--name", "x"), "there is no such folder"),
    "no checkout": (("add", ".", "--name", "x"), "holds no Python file"),
    "no name": (("add", "CHECKOUT", "--name", "../x"), "is no name"),
    "a version's name": (("add", "CHECKOUT", "--name", "0.16.1"), "is a version of Megatron-LM already"),
    "no backend": (("add", "CHECKOUT", "--name", "x", "--like", "nosuch@1"), "no backend 'nosuch'"),
    "another backend": (("add", "CHECKOUT", "--name", "x", "--like", "mindformers"), "is not read from its source"),
    "no version": (("add", "CHECKOUT", "--name", "x", "--like", "megatron_lm@9.9"), "9.9 is not known"),
    "no fork": (("remove", "nosuch"), "no fork 'nosuch'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest, case: str) -> None:
    words, text = BAD[case]
    checkout = request.getfixturevalue("checkout") if "CHECKOUT" in words else ""
    code, out, err = run(capsys, "catalogue", *(checkout if word == "CHECKOUT" else word for word in words))
    assert (code, out) == (1, "")
    assert text in err
    assert not Path("catalogues").exists()


def test_a_taken_name_is_refused_unless_replaced(
    capsys: pytest.CaptureFixture[str], checkout: str, tmp_path: Path
) -> None:
    other = str(fork_checkouts.fork(tmp_path / "other"))
    assert run(capsys, "catalogue", "add", checkout, "--name", "ours")[0] == 0
    assert run(capsys, "catalogue", "add", checkout, "--name", "ours")[0] == 0  # the same checkout is read again
    code, _, err = run(capsys, "catalogue", "add", other, "--name", "ours")
    assert (code, "--replace" in err, checkout in err) == (1, True, True)
    assert run(capsys, "catalogue", "add", other, "--name", "ours", "--replace")[0] == 0
    (fork,) = tree(capsys, "catalogue", "list")["forks"]
    assert fork["checkout"] == other


def test_a_broken_file_is_named_and_the_rest_works(capsys: pytest.CaptureFixture[str], checkout: str) -> None:
    run(capsys, "catalogue", "add", checkout, "--name", "ours")
    (file,) = Path("catalogues/megatron_lm").iterdir()
    file.with_name(file.name.replace("ours", "broken")).write_text("{")
    forget_forks()
    code, out, err = run(capsys, "catalogue", "list")
    assert (code, "ours" in out, "broken" in err, "launch catalogue remove broken" in err) == (0, True, True, True)
    assert run(capsys, "import", script(), "--backend-version", "ours", "--backend", "megatron_lm")[0] == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("import", "train.sh", "--name", "x"), "--name needs --source DIR"),
        (
            ("import", "train.sh", "--source", ".", "--backend", "megatron_lm"),
            "--source determines backend and version",
        ),
    ],
)
def test_options_that_do_not_go_together(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], text: str) -> None:
    script()
    code, _, err = run(capsys, *words)
    assert (code, text in err) == (2, True)


def test_a_folder_of_a_checkout_is_refused_and_the_checkout_named(
    capsys: pytest.CaptureFixture[str], checkout: str
) -> None:
    """Without the rest, most arguments were missing from its version without a word."""
    parser = next(Path(checkout).rglob("arguments.py"))
    code, out, err = run(capsys, "catalogue", "add", str(parser.parent), "--name", "part")
    assert (code, out) == (1, "")
    assert f"works: {Path(checkout).resolve()}" in err


def test_a_checkout_that_changed_is_read_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = fork_checkouts.fork(tmp_path / "our fork")
    assert run(capsys, "catalogue", "add", str(checkout), "--name", "ours")[0] == 0
    words = ("import", script(f"{OURS} --newer 3"), "--backend-version", "ours")
    assert "changed since" not in run(capsys, *words)[2]
    parser = next(Path(checkout).rglob("arguments.py"))
    anchor = "    group.add_argument("
    text = parser.read_text().replace(anchor, f"{anchor}'--newer', type=int)\n{anchor}", 1)
    parser.write_text(text)
    os.utime(parser, (time.time() + 60,) * 2)
    monkeypatch.setenv("COLUMNS", "300")
    offered = run(capsys, *words)[2].partition("works: ")[2].partition(": the checkout changed")[0]
    assert run(capsys, *shlex.split(offered)[1:])[0] == 0
    assert run(capsys, *words)[0] == 0


def test_a_misspelt_fork_is_offered_by_its_name(capsys: pytest.CaptureFixture[str], checkout: str) -> None:
    added = tree(capsys, "catalogue", "add", checkout, "--name", "ours")
    code, _, err = run(capsys, "check", "+recipe=qwen3_8b", "backend=megatron_lm", "backend.version=ourz")
    assert (code, f"works: backend.version={added['version']}" in err) == (2, True)


def test_a_rehearsal_of_a_fork_says_what_to_leave_out(
    capsys: pytest.CaptureFixture[str], checkout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(capsys, "import", script(), "--source", checkout, "--name", "ours", "-o", "our job.yaml")
    monkeypatch.setenv("COLUMNS", "400")
    words = ("run", "+job=our job.yaml", "runtime=rehearsal", "rehearse.shrink=true", "--json")
    code, out, _ = run(capsys, *words)
    unknown = [each for each in json.loads(out)["findings"] if each["rule"] == "ARG-UNKNOWN"]
    assert code == 1
    assert {path for each in unknown for path in each["fields"]} == {
        f"backend.args.{name}" for name in ("z-loss-weight", "our-schedule", "use-z-loss")
    }
    (fix,) = unknown[0]["fix"]
    left_out = sorted(fix.split())
    assert left_out == sorted(f"backend.args.{name}=null" for name in ("z-loss-weight", "our-schedule", "use-z-loss"))


def test_a_default_of_the_fork_breaks_no_rule_of_the_version_that_it_is_like(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    option = (
        '    group.add_argument("--inference-batch-times-seqlen-threshold", type=int, default=512)\n    return parser\n'
    )
    older = fork_checkouts.FORK.removesuffix("    return parser\n") + option
    fork_checkouts.write(tmp_path / "older", megatron__training__arguments=older)
    code, _, err = run(capsys, "import", script(), "--source", str(tmp_path / "older"), "-o", "job.yaml")
    assert code == 0, err
    _, out, _ = run(capsys, "check", "+job=job.yaml")
    assert "MLM-INFERENCE-THRESHOLD" not in out
