"""What all tests share: options and samples, running the real command line in a child process, and small jobs."""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.job import Job, build, derive
from tests import sampling
from tests.commands import ROOT, CommandServer, Finished

# Each of the suite's many child processes would compile every module anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Lines are as long as in a pipe: workers of pytest-xdist have the width of the terminal that it was started in.
for _width in ("COLUMNS", "LINES"):
    os.environ.pop(_width, None)
sys.dont_write_bytecode = False
# Scripts that ask for python3 mean this interpreter, also where its environment is not activated.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
# Forks that whoever runs the tests has added are none of theirs.
os.environ["LAUNCH_CATALOGUES"] = os.devnull
# A shell starts what runs in its background with SIGINT ignored, and every child would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests of a file run on one worker (pytest --dist loadgroup), as do files that share an expensive process or machine.
GROUPS = {
    "tests/rehearse/core": "megatron-core",
    "tests/rehearse/native/test_transformer_engine_standin.py": "megatron-core",
    "tests/rehearse/native/test_megatron_swift.py": "ms-swift",
    "tests/cluster": "cluster",
    "tests/browser": "browser",
    "tests/executors/test_kubernetes_run.py": "kubernetes",
    "tests/ui/test_server.py": "browser",
}

WHOLLY_SLOW = re.compile(r"^pytestmark = .*\bpytest\.mark\.slow\b", re.M)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("samples")
    group.addoption("--all-cases", action="store_true", help="run every case of sampled tests, and all examples")
    group.addoption("--seed", metavar="N|rotate", help="seed of samples and examples (default: the commit's tree)")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    sampling.configure(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["seed"] = sampling.chosen_seed()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    cases = "all cases" if config.getoption("all_cases") else "a sample of the cases"
    terminalreporter.write_line(f"seed {sampling.chosen_seed()[0]}, {cases}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out modules of slow tests alone where slow ones are: importing megatron-core takes a worker six seconds."""
    if config.getoption("markexpr") != "not slow" or collection_path.suffix != ".py":
        return None
    return True if WHOLLY_SLOW.search(collection_path.read_text(encoding="utf-8")) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    sampling.deselect(config, items)
    for item in items:
        file = item.nodeid.partition("::")[0]
        group = next((group for start, group in GROUPS.items() if file.startswith(start)), None)
        item.add_marker(pytest.mark.xdist_group(group or file))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return how many workers `-n auto` means: a worker takes about 1 GB, so no more than eight."""
    return min(len(os.sched_getaffinity(0)), 8)


@pytest.fixture(autouse=True)
def restored_signals() -> Iterator[None]:
    """A test that leaves SIGINT or SIGTERM ignored in this process would make children of later tests deaf to them."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        ignored = signal.getsignal(number) is signal.SIG_IGN
        assert handler is signal.SIG_IGN or not ignored, f"{number.name} is ignored from here on"


Launch = Callable[..., Finished]


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandServer]:
    """What runs the command line."""
    with CommandServer(tmp_path_factory.mktemp("commands")) as server:
        yield server


@pytest.fixture
def launch(tmp_path: Path, commands: CommandServer) -> Launch:
    """Run `launch WORDS` as a user would, in an empty folder."""

    def run(*args: str, timeout: float = 240, env: dict[str, str] | None = None) -> Finished:
        own = {"PYTHONPATH": str(ROOT), "LAUNCH_HOME": f"{tmp_path}.launch"}
        return commands.run(args, cwd=tmp_path, env={**os.environ, **own, **(env or {})}, timeout=timeout)

    return run


DENSE = {
    "model": {
        "model_type": "qwen3",
        "num_hidden_layers": 8,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 512,
        "max_position_embeddings": 4096,
        "qk_layernorm": True,
    },
    "batch": {"seq_length": 128, "global_batch_size": 16},
    "schedule": {"train_iters": 100},
    "optimizer": {"lr": 1e-3},
    "data": {"format": "sample"},
    "cluster": {"devices_per_node": 8},
}
MOE_MODEL = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}


def make_job(tree: dict[str, Any] | None = None, *, moe: bool = False, backend: str | None = "megatron_lm") -> Job:
    """Return a small legal job with some values changed; `tree` is nested like a recipe."""
    merged: dict[str, Any] = {section: dict(values) for section, values in DENSE.items()}
    if moe:
        merged["model"] |= MOE_MODEL
    merged["backend"] = {"name": backend}
    for section, values in (tree or {}).items():
        merged[section] = {**merged.get(section, {}), **values} if isinstance(values, dict) else values
    job, problems = build(merged)
    assert not problems, problems
    return derive(job)
