"""Directives of schedulers other than Slurm (`#PBS`, `#$`, `#BSUB`, `#PJM`): comments to bash, reported in a note."""

import re

from launcher.importing.notes import Note

# Start of a directive: who reads it.
_DIRECTIVES = {
    "#PBS": "PBS (qsub)",
    "#$": "Grid Engine (qsub)",
    "#BSUB": "LSF (bsub)",
    "#PJM": "Fujitsu's job operation software (pjsub)",
    "#COBALT": "Cobalt (qsub)",
}
_DIRECTIVE = re.compile(rf"({'|'.join(map(re.escape, _DIRECTIVES))})\s+(-.*)")


def directives(text: str, file: str) -> list[Note]:
    """Return a note on the directives before a script's first command; none if there are none."""
    found: list[tuple[int, str, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        directive = _DIRECTIVE.fullmatch(line.rstrip())
        if directive is not None:
            found.append((number, directive.group(1), directive.group(2).partition(" #")[0].strip()))
        elif line.strip() and not line.startswith("#"):
            break
    if not found:
        return []
    number, start, _ = found[0]
    given = ", ".join(options for _, _, options in found)
    message = f"{_DIRECTIVES[start]}: {given}: dropped: no executor of launch submits to it"
    works = "cluster=environment cluster.nodes=N on every node of such a job, with NODE_RANK and MASTER_ADDR"
    return [Note(message=message, where=f"{file}:{number}", works=(works,))]
