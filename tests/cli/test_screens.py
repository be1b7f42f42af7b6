"""Screens as a person sees them: at 80, 120 and 200 columns, with and without colour, and pasted into bash.

`LAUNCH_WRITE_SCREENS=1 pytest tests/cli/test_screens.py` writes tests/cli/screens again: read the difference.
"""

import contextlib
import io
import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.api import compose
from launcher.cli import catalogue, convert, watch
from launcher.cli.calibrate_screen import screen as calibration_screen
from launcher.cli.dispatch import VERBS, dispatch
from launcher.cli.doctor import show as show_checks
from launcher.cli.dry_run_screen import command_lines
from launcher.cli.estimate_screen import folded
from launcher.cli.explain_names import explained, load_all
from launcher.cli.name_search import search_names
from launcher.cli.parity_screen import screen as parity_screen
from launcher.cli.ps import print_runs
from launcher.cli.status import show as show_run
from launcher.doctor.check import Check
from launcher.estimate.result import StageMemory
from launcher.executors.record import Exit, Record
from launcher.mapping.backend import backend_names, get_backend
from launcher.observe.failure import Failure
from launcher.observe.state import State
from launcher.parity.compare import compared, tolerances
from launcher.parity.parameters import ParameterDifference
from launcher.parity.request import Result
from launcher.parity.routing import Flips
from launcher.pipeline import judge
from launcher.report.text_page import Page, cells
from launcher.runtime import planned
from tests.cli.calibration_sample import calibration
from tests.conftest import ROOT
from tests.parity.test_compare import trained

FOLDER = Path(__file__).with_name("screens")
WIDTHS = (80, 120, 200)
MOE = ("+recipe=qwen3_moe", "backend=megatron", "hardware=h100_80g")
FILES = "tests/importing/data"
SMALL = (
    *("+recipe=tiny_qwen3_moe", "backend=megatron_lm", "hardware=h100_80g", "cluster.devices_per_node=4"),
    "search.axes=[tp,ep,etp,micro_batch_size,dispatcher,recompute]",
)
PIPELINE = (
    *("+recipe=qwen3_8b", "hardware=ascend_910b", "cluster.nodes=1", "parallel.tp=1", "parallel.pp=4"),
    *("parallel.vpp=2", "batch.micro_batch_size=2", "batch.seq_length=8192"),
)
TAYLOR = (
    *("+recipe=deepseek_v3", "backend=mindformers", "hardware=ascend_910b", "cluster.nodes=128"),
    *("search.axes=[tp,pp,ep]", "batch.global_batch_size=1024"),
)
SCREENS = {
    "dry_run": ("dry-run", *MOE, "parallel.tp=2", "parallel.sequence_parallel=true"),
    "dry_run_refused": ("dry-run", "+recipe=deepseek_v3", "backend=mindspeed", "parallel.tp=3"),
    "dry_run_all": ("dry-run", "+recipe=tiny_qwen3", "backend=mindformers", "--all"),
    "dry_run_why": (
        "dry-run",
        *MOE,
        "parallel.tp=2",
        "parallel.sequence_parallel=true",
        "--why",
        "perform_initialization",
    ),
    "estimate": ("estimate", *MOE, "cluster.nodes=4"),
    "estimate_does_not_fit": ("estimate", *MOE, "cluster.nodes=4", "hardware.memory_gib=32", "--why"),
    "explain_field": ("explain", "parallel.cp", "backend=mindspeed"),
    "explain_argument": ("explain", "--max_epochs"),
    "explain_search": ("explain", "resume"),
    "explain_rule": ("explain", "PAR-TP-HEADS"),
    "search": ("search", *SMALL, "--top", "4"),
    "search_measured": ("search", *SMALL, "--top", "4", "--profile-result", "tests/cli/measured.csv"),
    "search_does_not_fit": (
        *("search", "+recipe=llama3_70b", "backend=megatron", "hardware=h100_80g", "cluster.nodes=1"),
        "search.axes=[tp,pp,recompute]",
    ),
    "search_compare": (
        *("search", "+recipe=qwen3_8b", "backend=megatron", "hardware=h100_80g", "search.axes=[tp,pp,recompute]"),
        *("--compare", "--top", "3"),
    ),
    "search_taylor": ("search", *TAYLOR, "--space", "taylor", "--top", "2"),
    "balance": ("balance", *PIPELINE, "backend=mindformers", "--quick"),
    "balance_one_number": (
        *("balance", "+recipe=tiny_qwen3", "backend=megatron_lm", "hardware=h100_80g"),
        *("cluster.devices_per_node=2", "parallel.pp=2"),
    ),
    "diff": ("diff", f"{FILES}/mindspeed_qwen3.sh", f"{FILES}/qwen3_32b.sh"),
    "diff_backends": ("diff", "+recipe=qwen3_moe", "--backends", "megatron,mindspeed,mindformers,megatron_lm"),
    "import": ("import", f"{FILES}/swift_sft.sh"),
    "import_remarks": ("import", f"{FILES}/mindspeed_qwen3.sh"),
    "import_port": ("import", f"{FILES}/swift_3_5_moe.sh", "--to", "mindspeed"),
    "explain_trace": ("explain", "--trace", "parallel.sequence_parallel", "backend=mindformers"),
    "check_file": ("check", f"{FILES}/mindformers_qwen3.yaml"),
    "check_fix": ("check", "+recipe=qwen3_moe", "backend=megatron", "parallel.tp=3", "--fix"),
    "check_files": ("check", f"{FILES}/*.sh"),
    "list_backends": ("list", "backends"),
    "list_hardware": ("list", "hardware"),
    "check_data": (
        *("check", "+recipe=qwen3_8b_sft", "backend=mindspeed", "data.format=messages"),
        "data.paths=[tests/cli/sharegpt.jsonl]",
    ),
    "unknown_field": ("check", "+recipe=qwen3_moe", "backend=megatron", "paralel.tp=2"),
}
COLOURED = ("search_does_not_fit", "balance_one_number", "diff", "import_port", "check_files")
# What depends on the machine that the tests run on.
_HERE = re.compile(r"^here: .*\n(?:  .*\n)*", re.MULTILINE)
# Seconds that a search or a solver took.
_SECONDS = re.compile(r"((?:estimated|solved)\s+in\s+)\d+\.\d(?= s)")
# Lines of our own files move whenever somebody edits these; lines of upstream's are pinned with its version.
_LINES = re.compile(r"(\.yaml:|\b(?:launcher|backends)/[\w/]+\.py:)\d+")
# Every new rule changes how many there are.
_RULES = re.compile(r"^\d+(?= rules: )", re.MULTILINE)
# Progress, which the screen redraws until it is done.
_PROGRESS = re.compile(r"(?:\r\x1b\[K[^\r\n]*)*\r\x1b\[K")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def screen(words, stream):
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        dispatch(list(words))
    return stream.getvalue()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_as_it_was_when_somebody_looked_at_it(name, width, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")  # neither colours nor progress
    text = _HERE.sub("here: …\n", screen(SCREENS[name], Terminal()))
    check(name, width, _RULES.sub("N", _SECONDS.sub(r"\1…", _LINES.sub(r"\1N", text))))


def check(name, width, text):
    """Compare a screen with its file, or write it; assert that no line is longer than it must be."""
    path = FOLDER / f"{name}.{width}.txt"
    if os.environ.get("LAUNCH_WRITE_SCREENS"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    long = [line for line in text.splitlines() if cells(line) > width]
    assert all(len(line.split()) <= 3 for line in long), long  # a name or path that is wider than the screen


@pytest.mark.parametrize("width", WIDTHS)
def test_a_comparison_of_trainings_begins_with_its_answer(width):
    values = [(6.25 - 0.1 * number, 2.5 - 0.01 * number) for number in range(1, 6)]
    sides = [trained(label, *values) for label in ("megatron_lm 0.16.1", "megatron 4.6.0", "mindspeed 26.1.0")]
    sides[2] = trained("mindspeed 26.1.0", *values[:3], (5.9, 2.47), (5.8, 2.5))
    allowed = tolerances("fp32", sides[0], None, None)
    each = tuple(compared(sides[0], side, allowed, iterations=5) for side in sides[1:])
    parameters = ParameterDifference(
        name="model.layers.1.mlp.gate.weight", relative=3e-4, tolerance=1e-2, compared=34, absent=()
    )
    result = Result(
        folder=Path("launch_output/parity-1"),
        sides=(),
        trained=tuple(sides),
        reordered=None,
        compared=each,
        parameters={"megatron 4.6.0": parameters},
        routing={"megatron 4.6.0": Flips(counts={1: (0, 1024), 2: (3, 1024)})},
    )
    text = "\n".join(parity_screen(result, Page(width=width))) + "\n"
    assert text.startswith("not the same training\n")
    check("parity", width, text)


def run_of(number, folder, executor="local", nodes=1, handle=None):
    return Record(
        id=f"qwen3_8b-{number}",
        executor=executor,
        folder=folder,
        host="login1",
        user="ada",
        pid=7,
        start=7,
        submitted="2026-11-28T14:30:00Z",
        nodes=nodes,
        devices_per_node=8,
        what="Megatron-LM 0.16.1: pretrain_gpt.py on 2 x 8 cuda devices, started by srun on every node",
        handle=handle or {},
    )


RUNS = (
    (run_of(1, "/home/ada/launch_output/qwen3_8b"), State(state="done")),
    (run_of(2, "/mnt/shared/projects/qwen3/2026-11-28/learning-rate-3e-4"), State(state="failed", code=137)),
    (run_of(12, "/home/ada/long", "kubernetes", 128), State(state="queued", why="Unschedulable: 0/12 nodes")),
)


@pytest.mark.parametrize("width", WIDTHS)
def test_runs_are_listed_within_the_screen(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    shown, piped = Terminal(), io.StringIO()
    print_runs(RUNS, shown)
    check("ps", width, shown.getvalue())
    assert len(shown.getvalue().splitlines()) <= 1 + 2 * len(RUNS)
    print_runs(RUNS, piped)
    assert [line.split()[-1] for line in piped.getvalue().splitlines()[1:]] == [run.folder for run, _ in RUNS]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_failed_run_is_shown_within_the_screen(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    ends = (Exit(attempt=0, node=1, host="node12", code=137, how="killed by signal 9", at=0.0, lines=()),)
    failure = Failure(
        rank=9,
        node=1,
        host="node12",
        code=137,
        reason="out-of-memory",
        message="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 1 has 79.1 GiB",
        meaning="the device has no memory left",
        fields=("batch.micro_batch_size", "recompute.granularity", "parallel.tp"),
        evidence="/home/ada/launch_output/qwen3_8b/logs/node_1.log:1201",
    )
    run = run_of(2, "/home/ada/launch_output/qwen3_8b", "slurm", 2, {"job": 4711, "cluster": "gpu"})
    state = State(state="failed", code=137, at="2026-11-28T15:01:07Z", nodes=("node11", "node12"), exits=ends)
    shown = Terminal()
    with contextlib.redirect_stdout(shown):
        show_run(run, state, None, failure)
    check("status_failed", width, shown.getvalue())


@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_missing_is_shown_within_the_screen(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    checks = [
        Check(what="python", verdict="ok", found="3.11.2 (/opt/env/bin/python)"),
        Check(
            what="transformers",
            verdict="error",
            found="Python package transformers is missing, which the tokenizer of the job needs",
            works="pip install 'transformers>=4.33,<5.20.0'",
            source="ms-swift 4.6.0, METADATA on PyPI",
        ),
        Check(
            what="MINDSPEED_PATH",
            verdict="warning",
            found="environment variable MINDSPEED_PATH (a checkout) is no folder of this machine",
            works="git clone -b 26.1.0_core_r0.12.1 https://gitcode.com/Ascend/MindSpeed; export MINDSPEED_PATH=…",
        ),
        Check(what="devices", verdict="skipped", found="no hosts are asked (--no-hosts)"),
    ]
    shown = Terminal()
    with contextlib.redirect_stdout(shown):
        show_checks("qwen3_8b on MindSpeed-LLM 26.1.0", checks)
    check("doctor", width, shown.getvalue())


@pytest.mark.parametrize("width", WIDTHS)
def test_a_calibration_is_shown_within_the_screen(width):
    found = calibration()
    check("calibrate", width, "\n".join(calibration_screen(found, Page(width=width))) + "\n")
    (head, *_) = calibration_screen(found, Page())
    assert head.split() == ["layout", "step", "spread", "estimate", "tensors", "estimate"]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_watched_run_in_a_log_is_as_wide_as_the_page(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    why = "node12 does not answer: 2 of 16 nodes wait for it at the rendezvous of iteration 1,200"
    look = watch.Look(record=RUNS[0][0], state=State(state="running", why=why), training=None, silent_s=900)
    watch._plain(iter([look, look]))
    check("status_watch", width, capsys.readouterr().out)
    monkeypatch.delenv("COLUMNS")
    watch._plain(iter([look]))
    assert len(capsys.readouterr().out.splitlines()) == 1  # a program reads a line for each change


HELPED = [
    *([verb] for verb in VERBS),
    *(["convert", verb] for verb in convert.SUBVERBS),
    *(["catalogue", verb] for verb in catalogue.SUBVERBS),
]


@pytest.mark.parametrize("words", HELPED, ids=" ".join)
def test_help_fits_80_columns_except_for_commands_to_copy(words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = Terminal()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        dispatch([*words, "--help"])
    lines = shown.getvalue().splitlines()
    assert len(lines) > 5
    assert not [line for line in lines if cells(line) > 80 and not re.match(r"\s*(launch|eval|ssh) ", line)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dry_run_refused", "estimate", "explain_field", *COLOURED])
def test_colour_changes_nothing_but_colour(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.chdir(ROOT)

    def shown(stream):
        return _SECONDS.sub(r"\1…", _PROGRESS.sub("", screen(SCREENS[name], stream)))

    coloured = shown(Terminal())
    assert "\x1b[" in coloured
    plain = shown(io.StringIO())
    assert _ESCAPES.sub("", coloured) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown(Terminal()) == plain
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert screen(SCREENS[name], Terminal()).count("\x1b") == 0
    assert shown(Terminal()) == plain


def test_errors_are_red_and_warnings_yellow(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = screen(SCREENS["dry_run_refused"], Terminal())
    assert "\x1b[31merror\x1b[0m PAR-TP-HEADS" in text
    assert "\x1b[33mwarning\x1b[0m DATA-MISSING" in text
    assert "\x1b[31mrefused, 3 errors\x1b[0m" in text


def test_a_pipe_gets_whole_lines(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    text = screen(SCREENS["dry_run_refused"], io.StringIO())
    assert (
        "seq_length 4096 is not divisible by tp 3 × cp 1 = 3  [megatron-core 0.16.1 tensor_parallel/mappings.py" in text
    )


@pytest.mark.parametrize("name", ["search", "balance", "diff", "diff_backends", "import_remarks", "check_file"])
def test_80_columns_have_every_word_that_a_pipe_has(name, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(ROOT)
    piped = _SECONDS.sub(r"\1…", _LINES.sub(r"\1N", screen(SCREENS[name], io.StringIO())))
    narrow = (FOLDER / f"{name}.80.txt").read_text(encoding="utf-8")
    assert set(piped.split()) <= {*narrow.split(), "field"}  # the title above names, where no row is in columns
    assert max(map(cells, piped.splitlines())) > 80


@pytest.mark.parametrize("backend", ["megatron", "megatron_lm", "mindspeed"])
def test_the_command_pasted_into_bash_is_that_of_the_plan(backend, tmp_path):
    job = compose([f"backend={backend}", "+recipe=qwen3_moe", "runtime=native", "name=it's", "cluster.master_addr=h"])
    plan = planned(judge(job))
    stub = tmp_path / plan.nodes[0].argv[0]
    stub.write_text('#!/bin/bash\nprintf "%s\\n" "$@"; env >"$ENVIRONMENT"\n')
    stub.chmod(0o755)
    env = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "ENVIRONMENT": str(tmp_path / "env"),
        **{name: f"/of {name}" for name in ("DATA_PATH", "MODEL_PATH", "MEGATRON_LM_PATH", "MINDSPEED_LLM_PATH")},
        **{name: f"/of {name}" for name in ("MINDSPEED_PATH", "LAUNCH_DIR")},
    }
    lines = "\n".join(command_lines(plan, Page(width=80)))
    done = subprocess.run(["bash", "-euc", lines], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    wanted = [_replaced(word, {**env, **plan.nodes[0].env}) for word in plan.nodes[0].argv[1:]]
    assert done.stdout.splitlines() == wanted
    seen = (tmp_path / "env").read_text()
    assert all(f"{name}=" in seen for name in plan.nodes[0].env)


def _replaced(text, env):
    for _ in range(2):
        text = re.sub(r"\$\{(\w+)\}", lambda found: env.get(found[1], ""), text)
    return text


WORDS = st.lists(st.text("ab 中é", min_size=1, max_size=12).filter(str.strip), min_size=1, max_size=20)


@given(words=WORDS, width=st.integers(10, 60))
def test_wrapping_keeps_every_word_and_the_width(words, width):
    text = " ".join(" ".join(words).split())
    lines = Page(width=width).wrap(text, "first ", "  ")
    assert " ".join(" ".join(lines).split()) == f"first {text}"
    for line in lines:
        assert cells(line) <= width or len(line.split()) <= 2


@given(items=WORDS, width=st.integers(10, 60))
def test_items_are_broken_only_where_they_are_wider_than_the_page(items, width):
    items = [" ".join(item.split()) for item in items]
    lines = Page(width=width).join(items, "works: ", "  ")
    joined = "\n".join(lines)
    for item in items:
        assert item in joined or cells(item) > width - 2


@given(sizes=st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_folded_stages_cover_every_stage_once(sizes):
    stages = [
        StageMemory(
            stage=number,
            weights=size << 32,
            gradients=0,
            optimizer=0,
            activations=0,
            workspace=0,
            peak_allocated=size << 32,
            peak_reserved=size << 32,
        )
        for number, size in enumerate(sizes)
    ]
    rows = folded(stages)
    numbers = [number for label, _ in rows for number in _numbers(label)]
    assert numbers == list(range(len(sizes)))
    assert all(stages[number].weights == stage.weights for label, stage in rows for number in _numbers(label))


def _numbers(label):
    ends = [int(text) for text in re.findall(r"\d+", label)]
    return range(ends[0], ends[-1] + 1)


def test_whatever_a_search_finds_can_be_explained():
    backends = [get_backend(name) for name in backend_names()]
    load_all(backends)
    for query in ("resume", "wandb", "yarn", "long context", "memory", "flash", "batch size", "overlap", "swiglu"):
        for hit in search_names(query, backends):
            assert next(explained(hit.name, backends), None) is not None, (query, hit.name)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("--why", "parallel.tp"), "command line"),
        (("--why", "--tensor_model_parallel_size"), "Tensor parallel size."),
        (("--why", "NPROC_PER_NODE"), "launcher"),
        (("--why", "cp_comm_type"), "sets it itself"),
        (("--why", "model.sliding_window"), "backend default"),
    ],
)
def test_why_explains_arguments_fields_and_variables(launch, words, shown):
    result = launch("dry-run", *MOE, "parallel.tp=2", "parallel.sequence_parallel=true", *words)
    assert result.code == 0, result
    assert shown in result.out


def test_why_of_an_unknown_name_offers_known_ones(launch):
    result = launch("dry-run", *MOE, "--why", "tensor_model_paralel_size")
    assert result.code == 2
    works = result.err.partition("works: ")[2].split(" · ")
    assert works
    for name in works:
        assert launch("dry-run", *MOE, "--why", name.strip()).code == 0


def test_all_shows_every_argument_once(launch):
    shown = launch("dry-run", *MOE, "--all", env={"COLUMNS": "200"}).out
    args = launch("dry-run", *MOE, "--json").json["args"]
    table = shown.partition("arguments\n")[2].partition("sets these itself")[0]
    assert [line.split()[0] for line in table.splitlines() if line.startswith("  ")] != []
    for arg in args:
        assert re.search(rf"^  {re.escape(arg['flag'])} ", table, re.MULTILINE), arg


def test_what_is_shown_differs_from_recipe_and_default(launch):
    out = launch("dry-run", *MOE, "parallel.tp=2", "parallel.sequence_parallel=true", env={"COLUMNS": "200"}).out
    shown = out.partition("the backend's defaults")[2].partition("NPROC_PER_NODE")[0]
    assert "tensor_model_parallel_size  2" in shown
    assert "pipeline_model_parallel_size" not in shown  # the recipe's
    assert "adam_eps" not in shown  # the backend's default
    assert out.count("--tensor_model_parallel_size") == 1  # the command, once for both nodes


@pytest.mark.parametrize("words", [("--all", "--json"), ("--why", "x", "--format", "shell")])
def test_options_of_the_text_are_refused_with_other_formats(launch, words):
    assert launch("dry-run", *MOE, *words).code == 2
