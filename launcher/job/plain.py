"""Jobs of a few plain overrides, built without Hydra, whose import takes longer than copying 0.5 GB."""

import re
from collections.abc import Sequence

from launcher.job.build import build
from launcher.job.schema import Job

# Sections that neither files nor the model fill where no group is chosen: composition sets in them what is typed.
_SECTIONS = "parallel|moe|kernels|tokenizer"
# Values that Hydra's grammar and the schema read alike, whatever the field is; all others are composed.
_PLAIN = re.compile(rf"({_SECTIONS})\.([a-z_]+)=([1-9][0-9]{{0,8}}|true|false)", re.ASCII)


def plain_job(words: Sequence[str]) -> Job | None:
    """Return the job whose sections have these values, without anything derived from them.

    None for overrides that have to be composed: other ones, mistakes among them, which composition explains.
    """
    tree: dict[str, dict[str, int | bool]] = {}
    for word in words:
        found = _PLAIN.fullmatch(word)
        section = tree.setdefault(found[1], {}) if found is not None else {}
        if found is None or found[2] in section:
            return None
        section[found[2]] = found[3] == "true" if found[3] in ("true", "false") else int(found[3])
    job, problems = build(tree)
    return None if problems else job
