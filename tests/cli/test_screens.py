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
from launcher.cli.dispatch import dispatch
from launcher.cli.dry_run_screen import command_lines
from launcher.cli.estimate_screen import folded
from launcher.cli.explain_names import explained, load_all
from launcher.cli.name_search import search_names
from launcher.estimate.result import StageMemory
from launcher.mapping.backend import backend_names, get_backend
from launcher.pipeline import judge
from launcher.report.text_page import Page, cells
from launcher.runtime import planned

FOLDER = Path(__file__).with_name("screens")
WIDTHS = (80, 120, 200)
MOE = ("+recipe=qwen3_moe", "backend=megatron", "hardware=h100_80g")
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
    "unknown_field": ("check", "+recipe=qwen3_moe", "backend=megatron", "paralel.tp=2"),
}
# What depends on the machine that the tests run on.
_HERE = re.compile(r"^here: .*\n(?:  .*\n)*", re.MULTILINE)
# Lines of recipes and models move whenever somebody edits these.
_LINES = re.compile(r"(?<=\.yaml:)\d+")
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
    monkeypatch.setenv("COLUMNS", str(width))
    text = _HERE.sub("here: …\n", screen(SCREENS[name], io.StringIO()))
    text = _LINES.sub("N", text)
    path = FOLDER / f"{name}.{width}.txt"
    if os.environ.get("LAUNCH_WRITE_SCREENS"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    long = [line for line in text.splitlines() if cells(line) > width]
    assert all(len(line.split()) <= 3 for line in long), long  # a name or path that is wider than the screen


@pytest.mark.parametrize("name", ["dry_run_refused", "estimate", "explain_field"])
def test_colour_changes_nothing_but_colour(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = screen(SCREENS[name], Terminal())
    assert "\x1b[" in coloured
    plain = screen(SCREENS[name], io.StringIO())
    assert _ESCAPES.sub("", coloured) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert screen(SCREENS[name], Terminal()) == plain
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert screen(SCREENS[name], Terminal()) == plain


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
        (("--why", "model.sliding_window"), "not set: the backend's default holds"),
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
