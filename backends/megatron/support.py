"""Versions that Megatron-SWIFT runs with, as its documentation names them."""

from launcher.translate.support import Needed

_GUIDE = "ms-swift docs/source_en/Megatron-SWIFT/Quick-start.md, environment table"
_NEW, _OLD = f"{_GUIDE} @main 2026-08 (4.6.0.dev0)", f"{_GUIDE} @v4.0.0, v3.12.6"

SUPPORT = (
    Needed(
        name="ms_swift",
        module="swift",
        is_backend=True,
        install="pip install ms-swift=={version}",
        source="swift/version.py",
    ),
    Needed(name="python", kind="python", wanted=">=3.10", tested="3.12", since="4.1", source=_NEW),
    Needed(name="python", kind="python", wanted=">=3.9", tested="3.10/3.11", until="4.0.99", source=_OLD),
    Needed(name="torch", wanted=">=2.0", tested="2.8.0/2.11.0", since="4.1", install="pip install torch", source=_NEW),
    Needed(name="torch", wanted=">=2.0", tested="2.8.0", until="4.0.99", install="pip install torch", source=_OLD),
    Needed(
        name="transformer_engine",
        wanted=">=2.3",
        tested="2.16.0",
        devices=("cuda",),
        install="pip install --no-build-isolation transformer_engine[pytorch]",
        source=_NEW,
    ),
    Needed(
        name="megatron_core",
        wanted=">=0.16,<0.20",
        tested="0.18.0",
        since="4.1",
        install="pip install megatron-core",
        source=_NEW,
    ),
    Needed(
        name="megatron_core",
        wanted=">=0.12,<0.16",
        tested="0.15",
        since="3.9",
        until="4.0.99",
        install="pip install 'megatron-core<0.16'",
        source=_OLD,
    ),
    Needed(
        name="mcore_bridge",
        wanted=">=1.3.0",
        tested="1.6.0",
        since="4.1",
        install="pip install mcore-bridge",
        source=_NEW,
    ),
    Needed(
        name="transformers",
        wanted=">=4.33",
        tested="4.57.6/5.12.1",
        install="pip install transformers",
        source=_NEW,
    ),
    Needed(
        name="peft", wanted=">=0.11,<0.21", since="4.1", install="pip install 'peft<0.21'", source="README.md @main"
    ),
    Needed(name="peft", wanted=">=0.11,<0.19", until="4.0.99", install="pip install 'peft<0.19'", source=_OLD),
    Needed(
        name="torch_npu",
        devices=("npu",),
        install="pip install torch_npu, of torch's own version",
        source="docs/source_en/BestPractices/NPU-support.md",
    ),
    Needed(name="cann", kind="cann", devices=("npu",), install="install CANN", source="NPU-support.md"),
)
