"""Cases of rules as data: changes of small legal command lines, judged as they are written."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from launcher.job import derive
from launcher.job.finding import Finding
from launcher.mapping.backend import Backend, get_backend
from launcher.mapping.engine import read_back
from launcher.mapping.native import NativeArg, NativeArgs
from launcher.rules.engine import load, run
from launcher.rules.native import rule_context

WORLD = 8
DENSE = (
    "--num-layers 8 --hidden-size 256 --ffn-hidden-size 512 --num-attention-heads 8 --max-position-embeddings 4096 "
    "--seq-length 128 --micro-batch-size 1 --global-batch-size 64 --train-iters 100 --lr 0.001 --min-lr 0.0001 --bf16 "
    "--swiglu --disable-bias-linear --normalization RMSNorm --position-embedding-type rope "
    "--untie-embeddings-and-output-weights --tokenizer-type NullTokenizer --vocab-size 511 --transformer-impl "
    "transformer_engine --eval-iters 0 --mock-data"
)
MOE = (
    "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 64 --moe-token-dispatcher-type alltoall "
    "--moe-grouped-gemm --expert-model-parallel-size 2"
)
ASCEND = "--use-flash-attn --no-masked-softmax-fusion --padded-vocab-size 512 -vocab-size --transformer-impl local"


@dataclasses.dataclass(frozen=True)
class Case:
    """One rule's pair: changes of a base that break it, and changes with which it is silent.

    `base` is dense or moe; `version` is the backend's version, empty for the first that has the rule.
    """

    id: str
    base: str
    version: str
    broken: str
    passing: str


def read(path: Path) -> Iterator[Case]:
    """Yield the cases of a file of lines `id | base | version | broken | passing`."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            yield Case(*(part.strip() for part in line.split("|||")))


def values(backend: Backend, version: str, changes: str, *, moe: bool = False) -> dict[str, Any]:
    """Return typed values of a base command line with changes; `-flag` leaves an argument of the base out."""
    catalogue = backend.catalogue(version)
    argv_of = f"{DENSE} {ASCEND if backend.name == 'mindspeed' else ''} {MOE if moe else ''} {changes}".split()
    found: dict[str, Any] = {}
    for index, arg in enumerate(argv_of):
        if arg.startswith("--") and not arg[2:3].isdigit():
            found[arg[2:]] = _following(argv_of, index)
        elif arg.startswith("-") and not arg[1:2].isdigit():
            found.pop(arg[1:], None)
    known = {name: catalogue.get(name) for name in found}
    if version == "2.1.0":
        found["use-mcore-models"] = True if "-use-mcore-models" not in argv_of else None
        known["use-mcore-models"] = catalogue.get("use-mcore-models")
    return {
        argument.name: _typed(argument, found[name])
        for name, argument in known.items()
        if argument is not None and found[name] is not None
    }


def _following(argv_of: list[str], index: int) -> list[str]:
    taken = []
    for arg in argv_of[index + 1 :]:
        if arg.startswith("-") and not arg[1:2].isdigit():
            break
        taken.append(arg)
    return taken


def _typed(argument: Any, argv_of: list[str]) -> Any:
    if argument.is_flag or argument.action == "boolean_optional":
        return True
    kinds = {"int": int, "float": float}
    typed = tuple(kinds.get(argument.type, str)(arg) for arg in argv_of)
    return typed if argument.is_list else typed[0]


def findings(
    backend: Backend, version: str, native: Mapping[str, Any], env: Mapping[str, str] | None = None
) -> list[Finding]:
    """Return what the rules say of a command line that somebody already has."""
    load(backend.rules)
    job = read_back(native, backend, version).job
    cluster = dataclasses.replace(job.cluster, nodes=1, devices_per_node=WORLD)
    choice = dataclasses.replace(job.backend, env=dict(env or {}))
    job = derive(dataclasses.replace(job, cluster=cluster, backend=choice))
    args = tuple(NativeArg(flag=flag, value=value) for flag, value in native.items())
    written = NativeArgs(backend=backend.name, version=version, args=args)
    return run(rule_context(job, backend, version, written, as_written=True))


def broken_by(backend_name: str, version: str, changes: str, *, moe: bool = False) -> dict[str, str]:
    """Return the ids of the rules that a changed base breaks, with their severity."""
    backend = get_backend(backend_name)
    found = findings(backend, version, values(backend, version, changes, moe=moe))
    return {finding.rule: finding.severity for finding in found}


def argv_of(native: Mapping[str, Any]) -> list[str]:
    """Return typed values as the words of a command line."""
    line: list[str] = []
    for name, value in native.items():
        line.append(f"--{name}")
        if value is not True:
            line.extend(str(item) for item in (value if isinstance(value, tuple) else (value,)))
    return line
