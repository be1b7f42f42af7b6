"""Versions that MindFormers runs with, as its README and requirements name them."""

from launcher.translate.support import Needed

_README = "MindFormers README.md, version table @r1.6.0"
_REQUIREMENTS = "MindFormers requirements.txt @r1.6.0"

SUPPORT = (
    Needed(
        name="MINDFORMERS_PATH",
        kind="checkout",
        install="git clone --branch v{version} https://gitcode.com/mindspore/mindformers; export MINDFORMERS_PATH=…",
        source="run_mindformer.py is in the source repository only",
    ),
    Needed(name="python", kind="python", wanted=">=3.7", tested="3.11.4", source=_README),
    Needed(
        name="mindspore",
        wanted=">=2.7.0rc1,<2.8",
        tested="2.7.0",
        until="1.99",
        install="pip install mindspore==2.7.0",
        source=_REQUIREMENTS,
    ),
    Needed(name="mindspore", since="2", install="pip install mindspore", source="MindFormers 2.1.0 imports it"),
    Needed(
        name="transformers",
        wanted="==4.51.3",
        until="1.99",
        install="pip install transformers==4.51.3",
        source=_REQUIREMENTS,
    ),
    Needed(
        name="tokenizers",
        wanted="==0.21.0",
        until="1.99",
        install="pip install tokenizers==0.21.0",
        source=_REQUIREMENTS,
    ),
    Needed(name="cann", kind="cann", tested="8.2.RC1", until="1.99", install="install CANN 8.2.RC1", source=_README),
    Needed(name="cann", kind="cann", since="2", install="install CANN", source=_README),
)
