"""MindSpeed-LLM's own parser, validators and configuration on CPU: reads command lines as JSON, answers with verdicts.

MindSpeed decides by the command line what it patches at import; see templates.py.
Input: one JSON object per line (argv, world_size); output: one JSON list of verdicts, empty where it is accepted;
with the argument ``each`` one JSON line per verdict, as they come. With ``values`` an answer is an object: the verdict
(`reported`) and what validation changes in the namespace (`changed`).
"""

import atexit
import functools
import gc
import importlib
import importlib.machinery
import importlib.util
import itertools
import json
import os
import shutil
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "megatron_lm"))
import namespaces
import templates

# Upstream's own packages and what stands in for them: to be imported anew under each command line.
_ANEW = ("mindspeed", "mindspeed_llm", "megatron", "torch_npu", "apex", "transformer_engine", "mamba_ssm", "torchair")
# A small legal command line, to see what upstream imports beside itself.
_USUAL = (
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 "
    "--micro-batch-size 1 --train-iters 1 --bf16 --use-flash-attn --transformer-impl local --tokenizer-type "
    "NullTokenizer --vocab-size 99 --mock-data --use-mcore-models --lr 0.001"
)
_LAST_WORDS = 400
_PRETENDED = {
    "sqlalchemy": ("sqlalchemy", "sqlalchemy.orm"),
    "sklearn": ("sklearn", "sklearn.linear_model", "sklearn.metrics"),
}


def verdict(argv: list[str], world_size: int, env: dict[str, str] | None = None) -> str:
    """Return what MindSpeed-LLM has against a command line, in a child process.

    Where it accepts it, what validation changes, as JSON.
    """
    return str(_in_child(lambda: _judge(argv, world_size, env or {})))


def serve(case: Mapping[str, Any]) -> Any:
    """Do one part of a start in a process of its own: import, look at the arguments as an import does, or judge.

    Returns: what upstream says against it, else (`judge`) what validation changes, as JSON, else nothing; for `look`
        every argument's value as text.
    """
    gc.disable()
    os.environ.update(case.get("env") or {}, WORLD_SIZE=str(case["world_size"]))
    sys.argv = ["pretrain_gpt.py", *case["argv"]]
    stage, reached, accepted = case["stage"], ["import"], ""
    try:
        if stage == "import":
            output = tempfile.TemporaryFile("w+")  # noqa: SIM115  (as long as the process)
            for stream in (1, 2):
                os.dup2(output.fileno(), stream)
            templates.note_arguments()
            _import()
            return ""
        templates.note_no_more()
        seen = templates.arguments_at_import(sys.argv)
        if stage == "look":
            return seen
        templates.note_no_more()
        accepted = _validate(reached)
    except (Exception, SystemExit) as error:
        last = _last_words() if isinstance(error, SystemExit) else ""
        reported = f"{reached[-1]}: {type(error).__name__}: {error} {last}"
    else:
        reported = accepted
    return templates.STALE if stage == "judge" and not case.get("own") and templates.disagreeing(seen) else reported


def _in_child(work: Callable[[], Any]) -> Any:
    """Return what a forked process makes of it; nothing that it prints is seen."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with tempfile.TemporaryFile("w+") as output, os.fdopen(writer, "w", encoding="utf-8") as answer:
            for stream in (1, 2):
                os.dup2(output.fileno(), stream)
            answer.write(json.dumps(work()))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as answer:
        reported = answer.read()
    os.waitpid(child, 0)
    return json.loads(reported) if reported else "process: ended without a word"


def _judge(argv: list[str], world_size: int, env: dict[str, str]) -> str:
    os.environ.update(env, WORLD_SIZE=str(world_size))
    sys.argv = ["pretrain_gpt.py", *argv]
    gc.disable()
    reached: list[str] = []
    try:
        return check(reached)
    except (Exception, SystemExit) as error:
        last = _last_words() if isinstance(error, SystemExit) else ""
        return f"{reached[-1]}: {type(error).__name__}: {error} {last}"


def _last_words() -> str:
    """Return the last line that was printed: what argparse has to say."""
    sys.stdout.flush()
    sys.stderr.flush()
    size = os.fstat(2).st_size
    return os.pread(2, _LAST_WORDS, max(0, size - _LAST_WORDS)).decode(errors="replace").strip().rpartition("\n")[2]


def check(reached: list[str]) -> str:
    """Go through the stages of a start, noting each one before it begins; return what validation changes."""
    reached.append("import")
    _import()
    return _validate(reached)


def _import() -> None:
    _ = importlib.import_module("mindspeed_llm").megatron_adaptor
    importlib.import_module("megatron.training.arguments")
    importlib.import_module("mindspeed_llm.training.initialize")


def _validate(reached: list[str]) -> str:
    arguments = importlib.import_module("megatron.training.arguments")
    reached.append("parser")
    args = arguments.parse_args()
    parsed = namespaces.snapshot(args)
    reached.append("validators")
    args = arguments.validate_args(args, {})
    reached.append("TransformerConfig")
    importlib.import_module("megatron.training.global_vars").set_args(args)
    return json.dumps(namespaces.changed(parsed, args, arguments.core_transformer_config_from_args(args)))


def _found_beside() -> list[str]:
    """Return the modules of other packages that a start imports."""
    before = set(sys.modules)
    sys.argv = ["pretrain_gpt.py", *_USUAL.split()]
    os.environ["WORLD_SIZE"] = "1"
    check([])
    return [name for name in sys.modules if name not in before and _is_from_elsewhere(name)]


def _is_from_elsewhere(name: str) -> bool:
    place = getattr(sys.modules[name], "__file__", None)
    return isinstance(place, str) and f"{os.sep}lib{os.sep}python" in place and name.split(".")[0] not in _ANEW


def prepare() -> None:
    """Import what every start imports beside upstream itself, so that a child starts in a fraction of the time."""
    sys.dont_write_bytecode = False
    sys.pycache_prefix = tempfile.mkdtemp(prefix="launch-bytecode-")
    atexit.register(shutil.rmtree, sys.pycache_prefix, ignore_errors=True)
    os.environ["PYTORCH_JIT"] = "0"  # 2.1.0 scripts functions for which there are stand-ins
    _have_pkg_resources()
    root = str(Path(__file__).parents[3])
    sys.path.insert(0, root)
    importlib.import_module("backends.mindspeed.rehearse.cpu").install("pretrain_gpt.py")
    sys.path.insert(0, os.environ["MINDSPEED_LLM_PATH"])
    importlib.import_module("transformers")
    found = _in_child(_found_beside)
    for name in found if isinstance(found, list) else ():
        importlib.import_module(name)
    _have_what_no_check_uses()  # after transformers, which would believe in it
    after_import = importlib.import_module("launcher.rehearse.cpu.after_import").after_import
    after_import("mindspeed.patch_utils", functools.partial(_patch_only_what_follows, len(sys.modules)))
    gc.freeze()


def _have_pkg_resources() -> None:
    """Give Megatron-LM 0.8 the one thing it takes from a package that setuptools no longer has."""
    if importlib.util.find_spec("pkg_resources") is None:
        module = types.ModuleType("pkg_resources")
        importlib.import_module("packaging.version")
        vars(module)["packaging"] = importlib.import_module("packaging")
        sys.modules["pkg_resources"] = module


def _have_what_no_check_uses() -> None:
    """Pretend the packages that MindSpeed's search for settings imports: a database, regression."""
    for package, modules in _PRETENDED.items():
        if importlib.util.find_spec(package) is not None:
            continue
        for name in modules:
            sys.modules[name] = mock.MagicMock(__spec__=importlib.machinery.ModuleSpec(name, None), __path__=[])


def _patch_only_what_follows(before: int, module: Any) -> None:
    """Let a patch look for a replaced function in what upstream imports, not in the 3,000 modules imported before."""

    class _Since(dict[str, Any]):
        def copy(self) -> dict[str, Any]:
            return dict(itertools.islice(sys.modules.items(), before, None))

        def __getitem__(self, name: str) -> Any:
            return sys.modules[name]

        def __setitem__(self, name: str, value: Any) -> None:
            sys.modules[name] = value

        def __contains__(self, name: object) -> bool:
            return name in sys.modules

    module.sys = types.SimpleNamespace(modules=_Since())


def verdicts() -> Iterator[str]:
    """Yield the answer to every line of the input."""
    lines = [json.loads(line) for line in sys.stdin]
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="8", MASTER_ADDR="127.0.0.1", MASTER_PORT="29999")
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    prepare()
    if not (Path(os.environ["MINDSPEED_LLM_PATH"]) / "mindspeed_llm" / "tasks" / "megatron_adaptor_v2.py").exists():
        # 2.1.0 patches in another way.
        for line in lines:
            yield verdict(line["argv"], line["world_size"], line.get("env"))
        return
    kept = templates.Templates(serve)
    for line in lines:
        yield kept.verdict(line)
    kept.close()


def answers(*, values: bool) -> Iterator[Any]:
    """Yield the answer to every line of the input, with what validation changes or only the verdict."""
    for answer in verdicts():
        is_accepted = answer.startswith("{")
        reported = "" if is_accepted else answer
        yield {"said": reported, "changed": json.loads(answer) if is_accepted else {}} if values else reported


def main() -> None:
    """Answer every line of the input."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # upstream prints
    found = answers(values="values" in sys.argv[1:])
    if "each" in sys.argv[1:]:
        for answer in found:
            print(json.dumps(answer), file=out, flush=True)
    else:
        print(json.dumps(list(found)), file=out)


if __name__ == "__main__":
    main()
