"""Taylor's command lines in the words of `launch balance` and `launch search`.

Source: mindspore/toolkits e8d3573 autoparallel/symphony: README 2.1-2.3, pipeline_conductor/pipeline_parallel.py
(pipeline of one YAML), pipeline_tool.py (pipelines of all candidates), parallel_tool.py (search of layouts).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from launcher.cli.refusal import WrongUse
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One option of Taylor, which takes a value.

    Attributes:
        to: the option here, or an override with `=` at its end; empty: it is not needed.
        note: why not.
        only: values that mean nothing else here; another one is refused.
    """

    to: str = ""
    note: str = ""
    only: tuple[str, ...] = ()


_NO_DRYRUN: Final = "no dry run is made: memory comes from --memory or from the estimate"
_NO_SCRIPT: Final = "no training is started"
_HIGHS: Final = Word(note="HiGHS solves it", only=("HIGHS",))
_DRYRUN: Final = Word(note=_NO_DRYRUN)
_SCRIPT: Final = Word(note=_NO_SCRIPT)


def _named(word: Word, *names: str) -> dict[str, Word]:
    return dict.fromkeys(names, word)


BALANCE: Final[Mapping[str, Word]] = {
    **_named(Word(to="--yaml"), "-yaml", "--train_yaml", "--yaml_path"),
    **_named(Word(to="--layer-ratio"), "-layer_ratio", "--layer_ratio", "---layer_ratio"),
    **_named(Word(to="--b-ratio"), "-b_ratio", "--backward_ratio", "---backward_ratio"),
    **_named(Word(to="--head-loss"), "-head_loss", "--head_loss"),
    **_named(Word(to="--ra-ratio"), "-ra_ratio", "--recompute_ratio", "---recompute_ratio"),
    **_named(Word(to="--time-limit"), "-t", "--time_limit"),
    **_named(Word(to="--profile-result"), "--parser_result"),
    **_named(_SCRIPT, "-mindformers", "--mindformers_loc", "--mindformers_dir", "--mindfomres_dir"),
    **_named(_HIGHS, "-solver", "-solver_name", "--solver_name"),
    **_named(_DRYRUN, "-dryrun", "--dryrun", "-check", "--check", "-fit", "--fit_level"),
    **_named(Word(note="only models of MoE layers after dense ones are described", only=("0",)), "-llm", "--llm_class"),
    **_named(
        Word(note="no solution files are written or read", only=("n", "no", "false", "0")), "-extract", "--extract"
    ),
    "--profile_data_dir": Word(note="times are read from --parser_result"),
    "--nd_path": Word(note="the layouts are those of the YAMLs"),
    "--gbs": Word(note="micro-batches are those of the YAMLs"),
}
SEARCH: Final[Mapping[str, Word]] = {
    "--yaml_path": Word(to="--yaml"),
    "--gbs": Word(to="batch.global_batch_size="),
    "--rank_num": Word(to="--profile-devices"),
    "--output_path": Word(to="--emit-profile"),
    "--max_expert_parallel": Word(to="search.max_ep="),
    **_named(_SCRIPT, "--mindformers_dir", "--mindfomres_dir"),
    "--solver_name": _HIGHS,
    **_named(_DRYRUN, "--dryrun_data_dir", "--parallel_num"),
    "--profile_data_dir": Word(note="times are read from --profile-result"),
    **_named(_SCRIPT, "--register_path", "--env_json"),
    **_named(Word(note="set data.paths; a profile needs a few steps of any data"), "--dataset", "--dataset_dir"),
    "--small_dataset": Word(note="no dry run is made"),
}
_TABLES: Final[Mapping[str, Mapping[str, Word]]] = {"balance": BALANCE, "search": SEARCH}


@dataclass(slots=True)
class Translated:
    """A command line in our words, and one note for each option that is not needed."""

    words: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def translated(verb: str, words: Sequence[str]) -> Translated:
    """Return a command line with options of Taylor in the words of a verb; other words stay as they are.

    Raises:
        WrongUse: an option lacks its value, or asks for what cannot be done here.
    """
    table, made = _TABLES[verb], Translated()
    rest = iter(words)
    for word in rest:
        name, joined, value = word.partition("=")
        option = table.get(name)
        if option is None:
            made.words.append(word)
            continue
        if not joined:
            value = next(rest, "")
        if not value:
            raise WrongUse(f"{name}: a value is missing", f"{name} VALUE")
        if option.only and value.lower() not in {each.lower() for each in option.only}:
            raise WrongUse(f"{name} {value}: {option.note}", f"{name} {option.only[0]}")
        if option.to.endswith("="):
            made.words.append(f"{option.to}{value}")
        elif option.to:
            made.words += [option.to, value]
        else:
            made.notes.append(f"{name} {value}: not needed, {option.note}")
    return made
