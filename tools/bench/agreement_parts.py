"""What tools.bench.agreement compares: each real validator, what it is asked, and the verdicts on both sides."""

import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.backends.users_path import UsersPath
from tests.backends.verdicts import Verdict

_MEGATRON_FACTS, _MINDSPEED_FACTS = "corpus_megatron_swift.jsonl", "corpus_mindspeed.jsonl"
_MINDFORMERS_FACTS = "corpus_mindformers.jsonl"
_ALTERED = "changed command lines of its own examples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user of the bench asked for.

    Attributes:
        slow, slow_seed: number of jobs and seed where a verdict takes a second or more; corners are a quarter of it.
        folder: for models' directories and files.
        cache: file that keeps answers; None: none are kept.
        megatron_lm: checkouts of Megatron-LM.
        mindspeed: checkouts of MindSpeed-LLM, MindSpeed and Megatron-LM, in this order, for each version.
        facts: folder with corpus_*.jsonl; None: none of it is asked about.
    """

    count: int
    slow: int
    seed: int
    slow_seed: int
    folder: Path
    cache: Path | None = None
    workers: int = 1
    megatron_lm: Sequence[str] = ()
    mindspeed: Sequence[Sequence[str]] = ()
    facts: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One row of the page.

    Attributes:
        validator: what is asked, with its version.
        asked: about what.
        run: gives the verdicts of cases that it writes as files.
    """

    backend: str
    validator: str
    asked: str
    run: Callable[[UsersPath], Sequence[Verdict]] = field(repr=False)


def parts(settings: Settings) -> Iterator[Part]:
    """Yield the rows that can be made with what is there."""
    yield from _swift(settings)
    yield from _mindformers(settings)
    yield Part(
        backend="core", validator="megatron-core 0.16.1 TransformerConfig", asked="jobs", run=partial(_core, settings)
    )
    for checkout in settings.megatron_lm:
        yield from _megatron_lm(settings, checkout)
    for checkouts in settings.mindspeed:
        yield from _mindspeed(settings, checkouts)


def _swift(settings: Settings) -> Iterator[Part]:
    from tests.backends.megatron import fuzzed, mutated, verdicts
    from tests.backends.mutated import changed
    from tests.rehearse.native.environments import swift_python

    title = "Megatron-SWIFT 4.6.0 argument classes"

    def jobs(path: UsersPath) -> Sequence[Verdict]:
        program = verdicts.validator(swift_python(), title=title, cache=settings.cache, workers=settings.workers)
        return verdicts.compare(fuzzed.jobs(settings.count, settings.seed), path, program)

    def altered(path: UsersPath) -> Sequence[Verdict]:
        assert settings.facts is not None
        known = mutated.bases(settings.facts / _MEGATRON_FACTS, settings.folder / "swift-lines")
        drawn = list(changed(known, mutated.MUTATIONS, settings.count, settings.seed))
        return mutated.compare(drawn, swift_python(), path, title=title, cache=settings.cache, workers=settings.workers)

    yield Part(backend="megatron", validator=title, asked="jobs", run=jobs)
    if settings.facts is not None:
        yield Part(backend="megatron", validator=title, asked=_ALTERED, run=altered)


def _mindformers(settings: Settings) -> Iterator[Part]:
    from tests.backends.mindformers import verdicts
    from tests.rehearse.native.environments import mindformers_1_6_python

    title = "MindFormers 1.6.0 checks and classes"
    kept: dict[str, Any] = {"cache": settings.cache, "workers": settings.workers}

    def jobs(path: UsersPath) -> Sequence[Verdict]:
        folder = settings.folder / "mindformers"
        program = verdicts.validator(mindformers_1_6_python(), folder, title="MindFormers 1.6.0", **kept)
        return verdicts.compare(settings.count, settings.seed, path, program)

    def files(path: UsersPath) -> Sequence[Verdict]:
        assert settings.facts is not None
        folder, name = settings.folder / "mindformers", "MindFormers 1.6.0 start"
        program = verdicts.validator(mindformers_1_6_python(), folder, "real_file.py", title=name, **kept)
        return verdicts.compare_files(settings.facts / _MINDFORMERS_FACTS, settings.count, settings.seed, path, program)

    yield Part(backend="mindformers", validator=title, asked="jobs", run=jobs)
    if settings.facts is not None:
        yield Part(backend="mindformers", validator=title, asked="changed files of its own examples", run=files)


def _core(settings: Settings, path: UsersPath) -> Sequence[Verdict]:
    from tests.rules.core_verdicts import compare, validator

    program = validator(title="TransformerConfig 0.16.1", cache=settings.cache)
    return compare(settings.count, settings.seed, path, program)


def _megatron_lm(settings: Settings, checkout: str) -> Iterator[Part]:
    from tests.backends.megatron_lm import mutated, verdicts
    from tests.backends.megatron_lm.checkout import version_of
    from tests.backends.mutated import changed

    version = version_of(checkout)
    if version is None:
        raise SystemExit(f"{checkout} is no checkout of a Megatron-LM that is known here")
    title = f"Megatron-LM {version} parser, validate_args and configuration"

    def corners(path: UsersPath) -> Sequence[Verdict]:
        program = verdicts.validator("megatron_lm", [checkout], title=title, cache=settings.cache)
        every = verdicts.drawn("megatron_lm", version, settings.count, settings.seed)
        drawn = random.Random(settings.seed).sample(every, min(len(every), settings.count))
        return verdicts.compare("megatron_lm", version, drawn, path, program)

    def altered(path: UsersPath) -> Sequence[Verdict]:
        drawn = list(changed(mutated.bases(Path(checkout)), mutated.MUTATIONS, settings.count, settings.seed))
        return mutated.compare("megatron_lm", version, drawn, path, [checkout], title=title, cache=settings.cache)

    yield Part(backend="megatron_lm", validator=title, asked="arguments alone, corners, mixtures", run=corners)
    if mutated.bases(Path(checkout)):
        yield Part(backend="megatron_lm", validator=title, asked=_ALTERED, run=altered)


def _mindspeed(settings: Settings, checkouts: Sequence[str]) -> Iterator[Part]:
    from tests.backends.megatron_lm import verdicts
    from tests.backends.megatron_lm.mutated import compare
    from tests.backends.mindspeed import mutated
    from tests.backends.mutated import changed
    from tests.rehearse.native.environments import mindspeed_python

    version = mindspeed_version(checkouts[0])
    title, shown = f"mindspeed {version}", f"MindSpeed-LLM {version} parser, validators and configuration"
    names = ("MINDSPEED_LLM_PATH", "MINDSPEED_PATH", "MEGATRON_LM_PATH")
    env = dict(zip(names, checkouts, strict=True))

    def corners(path: UsersPath) -> Sequence[Verdict]:
        program = verdicts.validator(
            "mindspeed",
            python=str(mindspeed_python()),
            env=env,
            title=title,
            cache=settings.cache,
            workers=settings.workers,
        )
        drawn = verdicts.drawn("mindspeed", version, settings.slow // 4, settings.slow_seed)
        return verdicts.compare("mindspeed", version, drawn, path, program)

    def lines(path: UsersPath, count: int) -> Sequence[Verdict]:
        assert settings.facts is not None
        known = mutated.bases(settings.facts / _MINDSPEED_FACTS)
        drawn = list(changed(known, mutated.MUTATIONS, count, settings.slow_seed))
        drawn = drawn[len(known) :] if count else drawn
        more: dict[str, Any] = {
            "python": str(mindspeed_python()),
            "env": env,
            "title": title,
            "workers": settings.workers,
        }
        return compare("mindspeed", version, drawn, path, cache=settings.cache, **more)

    if settings.facts is not None:
        yield Part(
            backend="mindspeed", validator=shown, asked="its own examples as written", run=partial(lines, count=0)
        )
        yield Part(backend="mindspeed", validator=shown, asked=_ALTERED, run=partial(lines, count=settings.slow))
    yield Part(backend="mindspeed", validator=shown, asked="corners and mixtures", run=corners)


def mindspeed_version(checkout: str) -> str:
    """Return which of the known versions a checkout of MindSpeed-LLM is of: by files that only the newer ones have."""
    program = Path(checkout) / "mindspeed_llm"
    if not (program / "tasks").is_dir():
        raise SystemExit(f"{checkout} is no checkout of MindSpeed-LLM")
    if not (program / "tasks" / "megatron_adaptor_v2.py").exists():
        return "2.1.0"
    return "master" if (program / "features_manager" / "memory" / "swap_layer_input.py").exists() else "26.1.0"


def named_checkouts() -> list[list[str]]:
    """Return MindSpeed-LLM's checkouts that the environment names, if it names all three."""
    found = [os.environ.get(name, "") for name in ("MINDSPEED_LLM_PATH", "MINDSPEED_PATH", "MEGATRON_LM_PATH")]
    return [found] if all(found) else []


def first_words(reported: str) -> str:
    """Return a validator's message in one line, without folders of this machine."""
    return re.sub(r"/(?:tmp|work|home)/\S+", "…", " ".join(reported.split()))[:160]
