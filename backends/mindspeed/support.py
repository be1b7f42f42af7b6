"""Versions that MindSpeed-LLM runs with, as its release notes and installation guide name them."""

from dataclasses import replace

from backends.megatron_lm.support import CHECKOUT
from launcher.translate.support import Needed

_GUIDE = "MindSpeed-LLM docs/zh/pytorch/training/install_guide.md, release_notes_llm.md @26.1.0"
_README = "MindSpeed-LLM README.md, version table @2.1.0"
_MEGATRON = "git clone --branch {version} https://github.com/NVIDIA/Megatron-LM; export MEGATRON_LM_PATH=…"
_PINNED = replace(CHECKOUT, is_backend=False, source="MindSpeed-LLM docs/zh/release_notes_llm.md, table 1")

SUPPORT = (
    Needed(
        name="MINDSPEED_LLM_PATH",
        kind="checkout",
        install="git clone --branch {version} https://gitcode.com/Ascend/MindSpeed-LLM; export MINDSPEED_LLM_PATH=…",
        source=_GUIDE,
    ),
    Needed(
        name="MINDSPEED_PATH",
        kind="checkout",
        install="git clone --branch 26.1.0_core_r0.12.1 https://gitcode.com/Ascend/MindSpeed; export MINDSPEED_PATH=…",
        source=_GUIDE,
    ),
    replace(_PINNED, wanted=">=0.12,<0.13", since="26", install=_MEGATRON.format(version="core_v0.12.1")),
    replace(_PINNED, wanted=">=0.8,<0.9", until="25.99", install=_MEGATRON.format(version="core_r0.8.0")),
    Needed(name="python", kind="python", wanted=">=3.10,<3.12", tested="3.10", source=_GUIDE),
    Needed(name="torch", wanted="==2.7.1", since="26", install="pip install torch==2.7.1", source=_GUIDE),
    Needed(name="torch", wanted=">=2.1,<2.7", until="25.99", install="pip install torch==2.6.0", source=_README),
    Needed(name="torch_npu", wanted=">=2.7.1,<2.8", since="26", install="pip install torch_npu==2.7.1", source=_GUIDE),
    Needed(name="torch_npu", until="25.99", tested="7.1.0", install="pip install torch_npu==2.6.0", source=_README),
    Needed(
        name="transformers",
        wanted="==5.2.0",
        since="26",
        install="pip install transformers==5.2.0",
        source="MindSpeed-LLM requirements.txt @26.1.0",
    ),
    Needed(
        name="transformers",
        wanted="==4.57.1",
        until="25.99",
        install="pip install transformers==4.57.1",
        source="MindSpeed-LLM requirements.txt @2.1.0",
    ),
    Needed(name="cann", kind="cann", tested="9.1.0", since="26", install="install CANN 9.1.0", source=_GUIDE),
    Needed(name="cann", kind="cann", tested="8.2.RC1", until="25.99", install="install CANN 8.2.RC1", source=_README),
)
