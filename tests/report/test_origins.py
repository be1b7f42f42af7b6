"""Every command names the origin of a value in the same words, and names it truly."""

import pytest

from launcher.cli import main
from launcher.compose.compose import compose
from launcher.report.content import entry_of
from launcher.report.html import as_html

MODEL = ("model=qwen3_8b", "task=pretrain", "backend=megatron_lm", "model.pretrained=false")
REST = ("batch.global_batch_size=8", "schedule.train_iters=10", "optimizer.lr=1e-4")
RECIPE = ("+recipe=qwen3_8b", "backend=megatron_lm")
# Overrides, an argument, the name of its origin, and what is said of its place.
CASES = {
    "a preset": ((*MODEL, *REST), "num-layers", "model preset", "conf/model/qwen3_8b.yaml:"),
    "a preset under another name": (
        ("model=Qwen/Qwen3-8B-Base", *MODEL[1:], *REST),
        "max-position-embeddings",
        "model preset",
        "conf/model/qwen3_8b.yaml, as Qwen/Qwen3-8B-Base",
    ),
    "a recipe": (RECIPE, "global-batch-size", "recipe", "recipes/qwen3_8b.yaml:"),
    "typed": ((*MODEL, *REST), "global-batch-size", "chosen by you", ""),
    "typed for another field": (
        (*MODEL, *REST, "batch.seq_length=128"),
        "max-position-embeddings",
        "chosen by you",
        "batch.seq_length=128",
    ),
    "default": ((*MODEL, *REST), "seed", "schema default", ""),
    "passed through": ((*MODEL, *REST, "+backend.args.log-throughput=true"), "log-throughput", "passed through", ""),
}


def line_of(flag: str, text: str) -> str:
    return next(line for line in text.splitlines() if line.split()[:1] == [flag] and len(line.split()) > 1)


@pytest.mark.parametrize(("words", "flag", "name", "place"), CASES.values(), ids=CASES)
def test_all_say_the_same(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    flag: str,
    name: str,
    place: str,
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    said = f"{name}, {place}" if place else name
    main(["dry-run", *words, "--all"])
    assert said in line_of(flag, capsys.readouterr().out)
    main(["dry-run", *words, "--why", flag])
    assert f" {name}" in line_of("origin", capsys.readouterr().out)
    (row,) = (row for row in entry_of(compose(words), "", words).arguments if row.flag == flag)
    assert row.origin == name
    assert place in row.where
    main(["explain", "--trace", flag, *words])
    written = [line for line in capsys.readouterr().out.splitlines() if line.strip().startswith(f"writes {flag} ")]
    assert written
    assert all(f"({said}" in line for line in written)


def test_a_notebook_names_the_preset() -> None:
    shown = as_html(compose(MODEL))
    assert "model preset, conf/model/qwen3_8b.yaml:" in shown
    assert "chosen by you" in shown
