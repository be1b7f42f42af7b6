"""Secrets planted at random places of a job and a script: no verb prints, writes or records one of them."""

import os
import random
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from launcher.cli import main
from launcher.job import fields
from launcher.job.secret import text_fields
from tests import planted
from tests.planted import Planted, found_in, quoted
from tests.sampling import examples

JOB = ("+recipe=tiny_qwen3", "schedule.train_iters=2", "schedule.lr_warmup_iters=0")
BACKENDS = ("megatron", "megatron_lm", "mindspeed", "mindformers")
KUBERNETES = ("cluster=kubernetes", "cluster.container=registry.example.com/i:1")
VERBS: tuple[tuple[str, ...], ...] = (
    ("dry-run",),
    ("dry-run", "--json"),
    ("dry-run", "--format", "shell"),
    ("dry-run", "--format", "argv"),
    ("dry-run", "--format", "yaml"),
    ("dry-run", "--format", "submit", "cluster=slurm"),
    ("dry-run", "--format", "submit", *KUBERNETES),
    ("dry-run", "--render", "out", "cluster=slurm"),
    ("dry-run", "--render", "out", *KUBERNETES),
    ("dry-run", "--render", "out", "--json"),
    ("dry-run", "-m", "optimizer.lr=1e-4,2e-4", "--json"),
    ("check",),
    ("check", "--json"),
    ("run", "parallel.pp=7"),
    ("run", "-m", "parallel.pp=5,7", "--json"),
    ("report", "-o", "report.html"),
)
FIELDS = tuple(
    path for path in text_fields() if path not in ("imported.args", "imported.env", "backend.args", "backend.env")
)
# Where a value stands that only its shape gives away: words of the command line.
ARGS = {
    "variable": "backend.env.EXTRA={}",
    "variables": "++backend.env={{EXTRA:{}}}",
    "argument": "backend.args.extra={}",
    "argument in an argument": "++backend.args.kwargs={{a:[{}]}}",
    "arguments": "++backend.args={{extra:{}}}",
    "imported argument": "+imported.args.extra={}",
    "imported variable": "+imported.env.EXTRA={}",
    "bash": "cluster.setup=[{}]",
    "queue": "cluster.sbatch_options=[{}]",
    "no such field": "paralel.tp={}",
    "no such argument": "backend.argz.x={}",
    "number": "parallel.tp={}",
    "choice": "runtime={}",
    "hardware": "hardware={}",
    "model": "model={}",
    "recipe": "+recipe={}",
    "job": "+job={}.yaml",
    "no override": "{}",
    "key": "+backend.env.{}=1",
    "list without end": "backend.args.extra=[{}",
    "several": "backend.args.extra={},{}",
}
# Lists of bash and of sbatch in which a value stands.
SETUP = ("export EXTRA={}", "curl -H 'X-Key: {}' http://x", 'A="{}" run', "# {}", "login {} || true")
QUEUE = ("--comment={}", "--export=ALL,EXTRA={}", "--wrap={}")
NAMED_WORDS = (
    "backend.env.{0}={1}",
    "++backend.env={{{0}:{1}}}",
    "backend.args.{0}={1}",
    "cluster.setup=['export {0}={2}']",
    "cluster.sbatch_options=['--export=ALL,{0}={2}']",
    "backend.envs.{0}={1}",
    "+imported.env.{0}={1}",
)


class Session:
    """What a verb printed and wrote."""

    def __init__(self, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self._capsys, self.folder = capsys, folder

    def __call__(self, *args: str) -> tuple[int, str]:
        """Run a verb in this process and return its exit code and what it printed."""
        self._capsys.readouterr()
        code = main(list(args))
        captured = self._capsys.readouterr()
        return code, captured.out + captured.err

    def holds_none(self, each: Planted, *args: str, but: tuple[str, ...] = ()) -> int:
        """Run a verb and look for the secret in all that it printed and wrote."""
        code, captured = self(*args)
        assert each.secret not in captured, (args, captured[max(0, captured.find(each.secret) - 200) :][:400])
        assert found_in(self.folder, each.secret, but=but) == [], args
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        return code


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Session:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAUNCH_HOME", str(tmp_path / "home"))
    return Session(capsys, tmp_path)


def _word(chance: random.Random, each: Planted) -> str:
    """Return an override that holds a secret somewhere."""
    text = quoted(each.text) if "\n" not in each.text else each.text
    place = chance.choice((*ARGS, *FIELDS))
    if place in FIELDS:
        is_list = "tuple" in str(fields()[place].type)
        return f"{place}=[{text}]" if is_list else f"{place}={each.text}"
    if place == "bash":
        return ARGS[place].format(quoted(chance.choice(SETUP).format(each.text)))
    if place == "queue":
        return ARGS[place].format(quoted(chance.choice(QUEUE).format(each.text)))
    return ARGS[place].format(text, text)


SHARED = [HealthCheck.function_scoped_fixture]


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
@examples(150, suppress_health_check=SHARED, deadline=None)
def test_an_argument_of_the_command_line(session: Session, seed: int) -> None:
    chance = random.Random(seed)
    verb, *more = chance.choice(VERBS)
    backend = f"backend={chance.choice(BACKENDS)}"
    if chance.random() < 0.3:
        each, name = planted.chosen(chance), chance.choice(planted.NAMES)
        session.holds_none(
            each, verb, *JOB, backend, *more, chance.choice(NAMED_WORDS).format(name, quoted(each.text), each.text)
        )
        return
    each = planted.SHAPES[chance.choice(tuple(planted.SHAPES))](chance)
    session.holds_none(each, verb, *JOB, backend, *more, _word(chance, each))


@pytest.mark.sample(keep=12)
@pytest.mark.parametrize("path", FIELDS)
def test_a_field_of_a_file(path: str, session: Session) -> None:
    chance = random.Random(path)
    each = planted.SHAPES[chance.choice(tuple(planted.SHAPES))](chance)
    tree: dict[str, object] = {}
    node = tree
    *sections, leaf = path.split(".")
    for section in sections:
        node = node.setdefault(section, {})  # type: ignore[assignment]
    node[leaf] = [each.text] if "tuple" in str(fields()[path].type) else each.text
    (session.folder / "mine.yaml").write_text(yaml.safe_dump(tree))
    verb, *more = chance.choice(VERBS[:9])
    session.holds_none(
        each, verb, "+recipe=mine.yaml", "model=tiny_qwen3", "backend=mindspeed", *more, but=("mine.yaml",)
    )


# What is done with a script.
READ = (
    ("import", "x.sh", "--partial", "-o", "out.yaml"),
    ("import", "x.sh", "--partial", "--json", "-o", "out.yaml"),
    ("import", "x.sh", "--partial", "--to", "megatron", "-o", "out.yaml"),
    ("check", "x.sh"),
    ("check", "x.sh", "--json"),
    ("diff", "x.sh", "y.sh", "--json"),
)


def _scripts(seed: int) -> Iterator[tuple[Planted, str]]:
    chance = random.Random(seed)
    name = chance.choice(planted.NAMES)
    by_name, by_shape = planted.chosen(chance), planted.SHAPES[chance.choice(tuple(planted.SHAPES))](chance)
    yield by_shape, chance.choice([text for _, text in planted.scripts(by_shape)])
    yield by_name, chance.choice([text for _, text in planted.named_scripts(name, by_name)])


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
@examples(60, suppress_health_check=SHARED, deadline=None)
def test_a_script(session: Session, seed: int) -> None:
    pytest.importorskip("tree_sitter_bash")
    chance = random.Random(f"verbs {seed}")
    for each, text in _scripts(seed):
        (session.folder / "x.sh").write_text(text)
        (session.folder / "y.sh").write_text(text.replace("--lr 1e-4", "--lr 2e-4"))
        session.holds_none(each, *chance.choice(READ), but=("x.sh", "y.sh"))
        if (session.folder / "out.yaml").exists():
            form = chance.choice(("shell", "json", "yaml"))
            session.holds_none(each, "dry-run", "+job=out.yaml", "--format", form, but=("x.sh", "y.sh"))
            (session.folder / "out.yaml").unlink()


TOKEN = "hf_" + "kQzWvTbXyR" * 3 + "abCD"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A stand-in for the backend that shows what reaches it."""
    path = tmp_path / "env" / "bin" / "megatron"
    path.parent.mkdir(parents=True)
    path.write_text(
        '#!/usr/bin/env bash\n[ "$EXTRA" = "$MINE" ] && [ -n "$MINE" ] && echo "it is there"\n'
        'for word in "$@"; do [ "$word" = "$MINE" ] && echo "the argument is there"; done; exit 0\n'
    )
    path.chmod(0o755)
    (tmp_path / "train.jsonl").write_text('{"messages": []}\n' * 2000)
    return path


RUN = ("+recipe=qwen3_8b", "backend=megatron", "runtime=native", "data.format=messages", "data.paths=[train.jsonl]")


@pytest.mark.parametrize("umask", [0o000, 0o077], ids=oct)
def test_a_run_has_the_value_and_keeps_it_nowhere(
    session: Session, program: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    """The value is in the user's environment: what was typed becomes that variable, and the process has it."""
    monkeypatch.setenv("MINE", TOKEN)
    args = (*RUN, "estimate.enforce=false", f"cluster.python={program.parent}/python", "output_dir=out")
    before = os.umask(umask)
    try:
        code, captured = session("run", *args, f"+backend.env.EXTRA={TOKEN[::-1]}hf_{TOKEN}")
    finally:
        os.umask(before)
    assert code == 1, "EXTRA is not exported"
    assert "EXTRA not set in the environment" in captured
    before = os.umask(umask)
    try:
        code, captured = session("run", *args, f"backend.env.EXTRA={TOKEN}", f"backend.args.hub_token={TOKEN}")
    finally:
        os.umask(before)
    assert code == 0, captured
    assert "it is there" in captured
    assert "the argument is there" in captured
    assert TOKEN not in captured
    assert found_in(session.folder, TOKEN) == []
    folders = ("out/run", "out/logs", "home", "home/runs")
    modes = {name: stat.S_IMODE((session.folder / name).stat().st_mode) for name in folders}
    assert modes == dict.fromkeys(folders, 0o700)
    files = [
        path
        for name in ("out/run", "out/logs", "home")
        for path in (session.folder / name).rglob("*")
        if path.is_file()
    ]
    assert len(files) > 5
    assert {path.name: path.stat().st_mode & 0o077 for path in files if path.stat().st_mode & 0o077} == {}


def test_what_was_left_readable_is_tightened(session: Session, program: Path) -> None:
    """Records that an earlier version wrote; the user's own folder above them stays as it is."""
    runs = session.folder / "home" / "runs"
    runs.mkdir(parents=True)
    (runs / "old-1.json").write_text('{"folder": "/none"}')
    for path, mode in ((runs.parent, 0o755), (runs, 0o755), (runs / "old-1.json", 0o644)):
        path.chmod(mode)
    args = (*RUN, "estimate.enforce=false", f"cluster.python={program.parent}/python", "output_dir=out")
    assert session("run", *args)[0] == 0
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (runs.parent, runs, runs / "old-1.json")]
    assert modes == [0o755, 0o700, 0o600]


@pytest.mark.parametrize("cluster", [("cluster=slurm",), KUBERNETES, ()], ids=["slurm", "kubernetes", "local"])
@pytest.mark.parametrize("umask", [0o000, 0o077], ids=oct)
def test_rendered_files_are_the_users_alone(session: Session, cluster: tuple[str, ...], umask: int) -> None:
    before = os.umask(umask)
    try:
        code, captured = session("dry-run", *JOB, "backend=mindformers", *cluster, "--render", "out")
    finally:
        os.umask(before)
    assert code == 0, captured
    files = [path for path in (session.folder / "out").rglob("*") if path.is_file()]
    assert files
    assert [path.name for path in files if path.stat().st_mode & 0o077] == []
    assert stat.S_IMODE((session.folder / "out" / "run").stat().st_mode) == 0o700


REFERENCES = {
    "a variable": ("backend.env.EXTRA=${oc.env:MY_TOKEN}", "EXTRA"),
    "inside of a text": ("backend.env.EXTRA=Bearer ${oc.env:MY_TOKEN}", "Bearer ${MY_TOKEN}"),
    "an argument": ("backend.args.hub_token=${oc.env:MY_TOKEN}", "hub_token"),
    "a name that says nothing, a value that does": ("backend.env.EXTRA=${oc.env:PLAIN}", "${PLAIN}"),
    "another node": ("backend.args.hub_token=${backend.env.MY_TOKEN}", "${MY_TOKEN}"),
    "bash": ("cluster.setup=['login ${oc.env:MY_TOKEN}']", "login ${MY_TOKEN}"),
}


@pytest.mark.parametrize(("arg", "shown"), REFERENCES.values(), ids=REFERENCES)
@pytest.mark.parametrize("verb", [("dry-run", "--json"), ("dry-run", "--format", "yaml")], ids=["json", "yaml"])
def test_a_reference_stays_one(
    session: Session, monkeypatch: pytest.MonkeyPatch, arg: str, shown: str, verb: tuple[str, ...]
) -> None:
    monkeypatch.setenv("MY_TOKEN", "quiet-4711")
    monkeypatch.setenv("PLAIN", "hf_" + "kQ" * 17)
    name, *more = verb
    code, captured = session(name, *JOB, "backend=megatron", "+backend.env.MY_TOKEN=${oc.env:MY_TOKEN}", arg, *more)
    assert code == 0, captured
    assert shown in captured.replace("\\", "")
    assert "quiet-4711" not in captured
    assert "kQ" * 17 not in captured


def test_other_variables_are_read_as_before(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE", "/data/x")
    _, captured = session("dry-run", *JOB, "backend=megatron_lm", "data.paths=[${oc.env:WHERE}]", "--format", "argv")
    assert "/data/x" in captured


def test_a_job_file_with_references_is_read_again(session: Session) -> None:
    run = dict(planted.scripts(Planted(text="x", secret="x")))["export"].splitlines()[-1]
    (session.folder / "x.sh").write_text(f"export WANDB_API_KEY=abc123\nexport EXTRA={TOKEN}\n{run}\n")
    pytest.importorskip("tree_sitter_bash")
    assert session("import", "x.sh", "-o", "job.yaml")[0] == 0
    code, captured = session("dry-run", "+job=job.yaml", "--format", "yaml")
    assert code == 0, captured
    (session.folder / "again.yaml").write_text(
        captured[: captured.index("warning ")] if "warning " in captured else captured
    )
    code, captured = session("dry-run", "+job=again.yaml", "backend=mindspeed", "--format", "shell")
    assert "${WANDB_API_KEY:?set WANDB_API_KEY before running this script}" in captured
    assert "${EXTRA:?set EXTRA before running this script}" in captured


@pytest.mark.parametrize(
    "arg", ["name={}", "cluster.account={}", "cluster.sbatch_options=['--comment={}']", "output_dir={}"]
)
def test_where_nothing_fills_in_a_reference_the_job_is_refused(session: Session, arg: str) -> None:
    code, captured = session("check", *JOB, "backend=megatron", "cluster=slurm", arg.format(TOKEN))
    assert code == 1
    assert "SECRET-PLACE" in captured
    assert TOKEN not in captured


EXPLAINED = ("WANDB_API_KEY", "HF_TOKEN", "GITHUB_PAT", "SWANLAB_API_KEY")


@pytest.mark.parametrize("name", EXPLAINED)
def test_explain_says_how_a_secret_reaches_the_processes(session: Session, name: str) -> None:
    code, captured = session("explain", name)
    assert code == 0
    assert f"export {name}=" in captured
    for executor in ("local", "environment", "ssh", "slurm", "kubernetes"):
        assert f"cluster={executor}: " in captured
    assert f"set: backend.env.{name}=VALUE" not in captured
