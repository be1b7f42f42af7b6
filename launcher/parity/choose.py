"""The sides that a request names: composed, installed, and of one model."""

import os
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module

from backends import CORE_BACKEND
from launcher.installed import installed
from launcher.job import fields, value_at
from launcher.mapping.backend import get_backend
from launcher.parity.request import Request
from launcher.parity.sides import CannotCompare, Entry, Side, own_weights, side_of
from launcher.rehearse.native import missing_in


def sides_of(request: Request) -> tuple[Side, ...]:
    """Compose every side.

    Raises:
        CannotCompare: one is not installed, two are the same, or their models differ.
        ComposeError, Refused: the overrides do not describe a job, or there is no such version.
    """
    made = []
    for backend in request.backends:
        name = backend.partition("@")[0]
        python = request.pythons.get(name)
        side = side_of(
            request.overrides,
            backend,
            entry=request.entry or "native",
            python=python,
            environ=request.environs.get(name, {}),
            config_dirs=request.config_dirs,
            iterations=request.iterations,
        )
        made.append(_with_entry(side, request.entry))
    _check_versions(request, made)
    for side in made[1:]:
        _check_model(made[0], side)
    return tuple(made)


def _check_model(first: Side, side: Side) -> None:
    """Refuse a job that is another model on one backend, as one that names the backend in a value."""
    for path in fields():
        values = [value_at(each.job, path) for each in (first, side)]
        if path.startswith("model.") and values[0] != values[1]:
            texts = ["null" if each is None else str(each).lower() for each in values]
            raise CannotCompare(
                f"the job is another model on {side.label} than on {first.label}: {path} {texts[1]}, not {texts[0]}",
                *(f"{path}={text}" for text in texts),
                job=side.job,
            )


def _check_versions(request: Request, sides: Sequence[Side]) -> None:
    """Refuse two names of one version of a backend."""
    named: dict[tuple[str, str], str] = {}
    for name, side in zip(request.backends, sides, strict=True):
        same = named.setdefault((side.backend.name, side.version), name)
        if same != name:
            kept = [each for each in request.backends if each != name]
            works = f"--backends {','.join(kept)}"
            works += " --reference transformers" if request.reference is not None or len(kept) < 2 else ""
            raise CannotCompare(f"{same} and {name} are both {side.backend.title} {side.version}", works)


def check_installed(request: Request, sides: Sequence[Side]) -> None:
    """Refuse a comparison whose own programs are not installed: what makes the model, the reference, and the trainer.

    Raises:
        CannotCompare: with what installs them.
    """
    needed: dict[str, str] = {}
    if any(side.entry == "core" for side in sides):
        needed |= dict.fromkeys(("torch", "megatron-core"), "pip install 'launch-llm[rehearsal]'")
    if request.reference is not None or own_weights(sides[0].job) is None:
        needed |= dict.fromkeys(("torch", "transformers"), "pip install torch transformers")
    there = installed(tuple(needed), None).versions
    lacking = [name for name in needed if name not in there]
    if lacking:
        works = dict.fromkeys(needed[name] for name in lacking)
        raise CannotCompare(f"{' and '.join(lacking)}: not installed beside Launch", *works)


def _with_entry(side: Side, asked: Entry | None) -> Side:
    """Return the side with an entry that can run here."""
    dialect = side.backend.name == CORE_BACKEND[0]
    # Megatron-LM has no LoRA: the job is another backend's, which the embedded trainer translates.
    if asked == "core" and not dialect and side.job.lora.rank is None:
        raise CannotCompare(
            f"--entry core: the embedded trainer reads the arguments of {get_backend(CORE_BACKEND[0]).title}, not of "
            f"{side.backend.title}",
            "without --entry (each backend's own entry point where it is installed)",
        )
    lacking = _lacking(side)
    if asked == "core" or (asked is None and lacking and dialect and side.python is None):
        if side.python is not None:
            raise CannotCompare("--entry core: the embedded trainer runs in this Python", "without --python")
        return replace(
            side, entry="core", label=f"{side.label} (core)", lacking=() if asked == "core" else tuple(lacking)
        )
    if lacking:
        name = side.backend.name
        works = [f"--python {name}=DIR/bin/python (an environment that has it)"]
        raise CannotCompare(f"{side.backend.title} cannot run here: {'; '.join(lacking)}", *works)
    return side


def _lacking(side: Side) -> list[str]:
    if side.backend.native_cpu is None:
        return ["it has no entry point on CPU"]
    native = import_module(side.backend.native_cpu).NATIVE_CPU
    return missing_in(side.python, native, {**os.environ, **side.environ})
