"""Versions that Megatron-SWIFT requires, according to its documentation and packages."""

from collections.abc import Iterator

from launcher.catalogue.requirements import Needed

_GUIDE = "ms-swift docs/source_en/Megatron-SWIFT/Quick-start.md, environment table"
_NEW, _OLD = f"{_GUIDE} @main 2026-08 (4.6.0.dev0)", f"{_GUIDE} @v4.0.0, v3.12.6"
_NPU = "ms-swift docs/source_en/BestPractices/NPU-support.md @main 2026-08 (4.6.0.dev0)"
_PINS = "ms-swift requirements/framework.txt @{version}"
_WHEEL = "ms-swift 4.6.0, METADATA on PyPI"

# Packages that are installed with ms-swift: name, since, until, required version, source.
_PINNED = (
    ("transformers", "4.1", None, ">=4.33,<5.20.0", _WHEEL),
    ("transformers", "4.0", "4.0.99", ">=4.33,<5.3.0", _PINS.format(version="v4.0.0")),
    ("transformers", "3.7", "3.99", ">=4.33,<4.58", _PINS.format(version="v3.12.6")),
    ("transformers", None, "3.6.99", ">=4.33,<4.53", _PINS.format(version="v3.6.4, v3.5.3")),
    ("peft", "4.1", None, ">=0.15,<0.21", _WHEEL),
    ("peft", "3.7", "4.0.99", ">=0.11,<0.19", _PINS.format(version="v4.0.0, v3.12.6")),
    ("peft", None, "3.6.99", ">=0.11,<0.16", _PINS.format(version="v3.6.4, v3.5.3")),
    ("trl", "4.1", None, ">=0.15,<1.0", _WHEEL),
    ("trl", "4.0", "4.0.99", ">=0.15,<0.29", _PINS.format(version="v4.0.0")),
    ("trl", "3.7", "3.99", ">=0.15,<0.25", _PINS.format(version="v3.12.6")),
    ("trl", None, "3.6.99", ">=0.15,<0.20", _PINS.format(version="v3.6.4, v3.5.3")),
    ("datasets", "4.1", None, ">=4.0,<4.8.5", _WHEEL),
    ("datasets", "3.7", "4.0.99", ">=3.0,<4.0", _PINS.format(version="v4.0.0, v3.12.6")),
    ("datasets", None, "3.6.99", ">=3.0,<3.4", _PINS.format(version="v3.6.4, v3.5.3")),
)


def _pinned() -> Iterator[Needed]:
    for name, since, until, wanted, source in _PINNED:
        yield Needed(
            name=name,
            since=since,
            until=until,
            wanted=wanted,
            tested="4.57.6/5.12.1" if (name, since) == ("transformers", "4.1") else "",
            install=f"pip install '{name}{wanted}'",
            source=source,
        )


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
    Needed(
        name="python", kind="python", wanted=">=3.10,<3.12", tested="3.11", since="4.1", devices=("npu",), source=_NPU
    ),
    Needed(name="torch", wanted=">=2.0", tested="2.8.0/2.11.0", since="4.1", install="pip install torch", source=_NEW),
    Needed(name="torch", wanted=">=2.0", tested="2.8.0", until="4.0.99", install="pip install torch", source=_OLD),
    Needed(
        name="transformer_engine",
        wanted=">=2.3",
        tested="2.16.0",
        since="4.1",
        devices=("cuda",),
        install="pip install --no-build-isolation transformer_engine[pytorch]",
        source=_NEW,
    ),
    Needed(
        name="transformer_engine",
        wanted=">=2.3",
        tested="2.10.0",
        until="4.0.99",
        devices=("cuda",),
        install="pip install --no-build-isolation transformer_engine[pytorch]==2.10.0",
        source=_OLD,
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
        wanted=">=1.6.3",
        since="4.1",
        install="pip install 'mcore-bridge>=1.6.3'",
        source=_WHEEL,
    ),
    *_pinned(),
    Needed(
        name="torch_npu",
        wanted=">=2.7.1.post4",
        since="4.1",
        devices=("npu",),
        install="pip install torch_npu, of torch's own version",
        source=_NPU,
    ),
    Needed(
        name="torch_npu",
        until="4.0.99",
        devices=("npu",),
        install="pip install torch_npu, of torch's own version",
        source=_NPU,
    ),
    Needed(
        name="cann",
        kind="cann",
        wanted=">=8.5.1",
        tested="9.0.0",
        since="4.1",
        devices=("npu",),
        install="install CANN 8.5.1 or later",
        source=_NPU,
    ),
    Needed(name="cann", kind="cann", until="4.0.99", devices=("npu",), install="install CANN", source=_NPU),
    Needed(
        name="mindspeed",
        since="4.1",
        devices=("npu",),
        install="git clone --branch core_r0.16.0 https://gitcode.com/Ascend/MindSpeed; pip install -e MindSpeed",
        source=_NPU,
    ),
    Needed(
        name="triton_ascend",
        tested="3.2.1",
        since="4.1",
        devices=("npu",),
        install="pip install triton-ascend==3.2.1 --extra-index-url=https://triton-ascend.osinfra.cn/pypi/simple",
        source=_NPU,
    ),
)
