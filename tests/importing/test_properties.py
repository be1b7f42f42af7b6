"""Properties over generated jobs on every backend: a job written as arguments and read again is the same job."""

import contextlib
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from launcher.importing.assemble import assemble
from launcher.importing.exact import exact
from launcher.importing.imported import Imported
from launcher.importing.roundtrip import written
from launcher.job import Job, value_at
from launcher.mapping.backend import backend_names, get_backend
from tests.conftest import make_job
from tests.effective import differing
from tests.sampling import examples

_FEW = examples(25, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Any]:
    """Return legal changes to a small job: layout, batch, schedule, optimizer, recomputation, precision, outputs."""
    tp, pp, cp = draw(st.sampled_from([(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 2, 1), (2, 2, 2), (4, 2, 1), (1, 1, 2)]))
    micro = draw(st.sampled_from([1, 2, 4]))
    recompute = draw(
        st.sampled_from(
            [{}, {"granularity": "selective"}, {"granularity": "full", "method": "uniform", "num_layers": 1}]
        )
    )
    return {
        "parallel": {"tp": tp, "pp": pp, "cp": cp, "sequence_parallel": tp > 1 and draw(st.booleans())},
        "batch": {
            "micro_batch_size": micro,
            "global_batch_size": micro * 8 * draw(st.integers(1, 4)),
            "seq_length": draw(st.sampled_from([128, 512, 4096])),
        },
        "schedule": {
            "train_iters": draw(st.integers(1, 10_000)),
            "lr_decay_style": draw(st.sampled_from(["cosine", "linear", "constant"])),
            "lr_warmup_fraction": draw(st.sampled_from([None, 0.0, 0.01, 0.1])),
        },
        "optimizer": {
            "lr": draw(st.sampled_from([1e-3, 3e-4, 1.25e-6])),
            "min_lr": draw(st.sampled_from([0.0, 1e-7])),
            "weight_decay": draw(st.sampled_from([0.0, 0.01, 0.1])),
            "adam_beta2": draw(st.sampled_from([0.95, 0.99, 0.999])),
            "clip_grad": draw(st.sampled_from([0.5, 1.0])),
        },
        "model": {
            "rms_norm_eps": draw(st.sampled_from([1e-5, 1e-6])),
            "rope_theta": draw(st.sampled_from([1e4, 1e6])),
            "tie_word_embeddings": draw(st.booleans()),
            "initializer_range": draw(st.sampled_from([0.01, 0.02])),
        },
        "recompute": recompute,
        "precision": {"dtype": draw(st.sampled_from(["bf16", "fp16"]))},
        "logging": {"interval": draw(st.integers(1, 50))},
        "seed": draw(st.integers(0, 2**31 - 1)),
    }


def read_again(job: Job, backend: str, version: str) -> tuple[dict[str, Any], Imported]:
    """Return a job's arguments, and the import of these."""
    args, _ = written(job, backend, version)

    def make(kept: set[str]) -> Imported:
        return assemble(
            args, get_backend(backend), version, command="pt", kept=kept, cluster=job.cluster, name=job.name
        )

    return args, exact(make, set())


CASES = [(name, version) for name in backend_names() for version in get_backend(name).versions]


@pytest.mark.sample(keep=6)
@pytest.mark.parametrize("backend,version", CASES)
@given(tree=trees(), moe=st.booleans())
@_FEW
def test_arguments_read_and_written_are_the_same(
    backend: str, version: str, tree: Mapping[str, Any], moe: bool
) -> None:
    job = make_job(dict(tree), moe=moe, backend=backend)
    args, imported = read_again(job, backend, version)
    again, _ = written(imported.job, backend, version)
    assert differing(imported.job, backend, version, args, again) == []


SAME = (
    "parallel.tp",
    "parallel.pp",
    "parallel.cp",
    "batch.micro_batch_size",
    "batch.global_batch_size",
    "schedule.train_iters",
    "optimizer.lr",
    "optimizer.weight_decay",
    "recompute.granularity",
    "recompute.method",
    "precision.dtype",
)


@pytest.mark.sample(keep=6)
@pytest.mark.parametrize("backend,version", CASES)
@given(tree=trees(), moe=st.booleans())
@_FEW
def test_what_every_backend_says_comes_back(backend: str, version: str, tree: Mapping[str, Any], moe: bool) -> None:
    job = make_job(dict(tree), moe=moe, backend=backend)
    _, imported = read_again(job, backend, version)
    lost = {path: (value_at(job, path), value_at(imported.job, path)) for path in SAME}
    assert {path: pair for path, pair in lost.items() if pair[0] != pair[1]} == {}


# Refused, as the grammar would end the process there (grammar.py: _CRASHES).
UNREADABLE = re.compile(r"\{\d*(\.\.\d*)?[\U00010000-\U0010ffff]")
WORD = st.text(alphabet=st.characters(blacklist_categories=("Cs", "Cc", "Co")), min_size=1, max_size=12)


@given(arguments=st.lists(WORD.filter(lambda word: not UNREADABLE.search(word)), max_size=6))
@examples(200)
def test_quoted_words_come_back_from_a_script(arguments: list[str]) -> None:
    import shlex

    from launcher.importing.evaluate import run_script
    from launcher.importing.shell.placeholders import shown
    from launcher.importing.shell.state import State

    state = State(script="x.sh")
    run_script(
        "A=(" + " ".join(map(shlex.quote, arguments)) + ')\nrun "${A[@]}" ' + " ".join(map(shlex.quote, arguments)),
        state,
        None,
    )
    assert [shown(arg) for arg in state.commands[0].words] == ["run", *arguments, *arguments]


@given(text=st.text(max_size=200))
@examples(200)
def test_any_text_is_read_or_refused(text: str) -> None:
    from launcher.importing.evaluate import run_script
    from launcher.importing.notes import ImportRefused
    from launcher.importing.shell.state import State

    with contextlib.suppress(ImportRefused):
        run_script(text, State(script="x.sh"), None)
