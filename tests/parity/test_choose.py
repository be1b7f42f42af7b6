"""What a comparison needs beside the backends is missing: refused before anything is made."""

import pytest

from launcher.installed import Installed
from launcher.parity import choose
from launcher.parity.request import Request
from launcher.parity.sides import CannotCompare, Entry, side_of

# The entry, what is installed, and what is said and works; None: nothing is missing.
MISSING: dict[str, tuple[Entry, str | None, set[str], tuple[str, ...] | None]] = {
    "the trainer": ("core", None, {"torch", "transformers"}, ("megatron-core:", "pip install 'launch-llm[rehearsal]'")),
    "what makes the model": ("native", None, {"torch"}, ("transformers:", "pip install torch transformers")),
    "the reference": ("native", "transformers", {"torch"}, ("transformers:", "pip install torch transformers")),
    "nothing": ("core", "transformers", {"torch", "transformers", "megatron-core"}, None),
}


@pytest.mark.parametrize("name", MISSING)
def test_programs_beside_the_backends_are_refused_with_what_installs_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, reference, there, said = MISSING[name]
    monkeypatch.setattr(choose, "installed", lambda _names, _python: Installed(versions=dict.fromkeys(there, "1")))
    words = ["+recipe=tiny_qwen3"]
    side = side_of(words, "megatron_lm", entry=entry, python=None, environ={}, config_dirs=(), iterations=2)
    asked = Request(overrides=words, backends=("megatron_lm",), iterations=2, reference=reference)
    if said is None:
        choose.check_installed(asked, [side])
        return
    with pytest.raises(CannotCompare, match=said[0]) as refused:
        choose.check_installed(asked, [side])
    assert refused.value.works == (said[1],)
