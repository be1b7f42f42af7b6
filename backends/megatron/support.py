"""Versions that Megatron-SWIFT requires, according to its documentation and packages."""

from collections.abc import Iterator

from launcher.catalogue.requirements import Needed

_GUIDE = "ms-swift docs/source_en/Megatron-SWIFT/Quick-start.md, environment table"
_NEW, _OLD = f"{_GUIDE} @main 2026-08 (4.6.0.dev0)", f"{_GUIDE} @v4.0.0, v3.12.6"
_NPU = "ms-swift docs/source_en/BestPractices/NPU-support.md @main 2026-08 (4.6.0.dev0)"
_NPU_42 = "ms-swift docs/source_en/BestPractices/NPU-support.md @v4.1.3, v4.2.3"
_PINS = "ms-swift requirements/framework.txt @{version}"
_WHEEL = "ms-swift {version}, METADATA on PyPI"

# Packages that are installed with ms-swift, and those of Megatron: name, since, until, required version, tested
# versions, source.
_PINNED = (
    ("transformers", "4.6", None, ">=4.33,<5.20.0", "4.57.6/5.12.1", _WHEEL.format(version="4.6.0")),
    ("transformers", "4.5", "4.5.99", ">=4.33,<5.17.0", "4.57.6/5.12.1", _WHEEL.format(version="4.5.3")),
    ("transformers", "4.3", "4.4.99", ">=4.33,<5.13.0", "4.57.6/5.12.1", _WHEEL.format(version="4.3.2, 4.4.2")),
    ("transformers", "4.2", "4.2.99", ">=4.33,<5.9.0", "4.57.6/5.8.1", _WHEEL.format(version="4.2.3")),
    ("transformers", "4.1", "4.1.99", ">=4.33,<5.7.0", "4.57.6/5.6.2", _WHEEL.format(version="4.1.3")),
    ("transformers", "4.0", "4.0.99", ">=4.33,<5.3.0", "", _PINS.format(version="v4.0.0")),
    ("transformers", "3.7", "3.99", ">=4.33,<4.58", "", _PINS.format(version="v3.12.6")),
    ("transformers", None, "3.6.99", ">=4.33,<4.53", "", _PINS.format(version="v3.6.4, v3.5.3")),
    ("peft", "4.5", None, ">=0.15,<0.21", "", _WHEEL.format(version="4.6.0, 4.5.3")),
    ("peft", "4.1", "4.4.99", ">=0.15,<0.20", "", _WHEEL.format(version="4.1.3 to 4.4.2")),
    ("peft", "3.7", "4.0.99", ">=0.11,<0.19", "", _PINS.format(version="v4.0.0, v3.12.6")),
    ("peft", None, "3.6.99", ">=0.11,<0.16", "", _PINS.format(version="v3.6.4, v3.5.3")),
    ("trl", "4.2", None, ">=0.15,<1.0", "", _WHEEL.format(version="4.2.3 to 4.6.0")),
    ("trl", "4.1", "4.1.99", ">=0.15,<0.30", "", _WHEEL.format(version="4.1.3")),
    ("trl", "4.0", "4.0.99", ">=0.15,<0.29", "", _PINS.format(version="v4.0.0")),
    ("trl", "3.7", "3.99", ">=0.15,<0.25", "", _PINS.format(version="v3.12.6")),
    ("trl", None, "3.6.99", ">=0.15,<0.20", "", _PINS.format(version="v3.6.4, v3.5.3")),
    ("datasets", "4.6", None, ">=4.0,<4.8.5", "", _WHEEL.format(version="4.6.0")),
    ("datasets", "4.2", "4.5.99", ">=3.0,<4.8.5", "", _WHEEL.format(version="4.2.3 to 4.5.3")),
    ("datasets", "3.7", "4.1.99", ">=3.0,<4.0", "", _PINS.format(version="v4.1.3, v4.0.0, v3.12.6")),
    ("datasets", None, "3.6.99", ">=3.0,<3.4", "", _PINS.format(version="v3.6.4, v3.5.3")),
    ("megatron_core", "4.4", None, ">=0.16,<0.20", "0.18.0", _NEW),
    ("megatron_core", "4.3", "4.3.99", ">=0.16,<0.20", "0.17.1", f"{_GUIDE} @v4.3.2"),
    ("megatron_core", "4.2", "4.2.99", ">=0.15,<0.18", "0.17.0", f"{_GUIDE} @v4.2.3"),
    ("megatron_core", "4.1", "4.1.99", ">=0.12,<0.17", "0.16.1", f"{_GUIDE} @v4.1.3"),
    ("megatron_core", "3.9", "4.0.99", ">=0.12,<0.16", "0.15", _OLD),
    ("mcore_bridge", "4.5", None, ">=1.6.3", "", _WHEEL.format(version="4.6.0, 4.5.3")),
    ("mcore_bridge", "4.4", "4.4.99", ">=1.5.0", "1.6.0", _WHEEL.format(version="4.4.2")),
    ("mcore_bridge", "4.3", "4.3.99", ">=1.4.0", "1.5.0", _WHEEL.format(version="4.3.2")),
    ("mcore_bridge", "4.2", "4.2.99", ">=1.2.0", "", _WHEEL.format(version="4.2.3")),
    ("mcore_bridge", "4.1", "4.1.99", ">=1.0.2", "", _WHEEL.format(version="4.1.3")),
)
# since, until, tested version, source.
_ENGINE = (
    ("4.3", None, "2.16.0", _NEW),
    ("4.2", "4.2.99", "2.14.1", f"{_GUIDE} @v4.2.3"),
    ("4.1", "4.1.99", "2.13.0", f"{_GUIDE} @v4.1.3"),
)
# since, until, branch of MindSpeed, source.
_MINDSPEED = (
    ("4.3", None, "core_r0.16.0", _NPU),
    ("4.2", "4.2.99", "core_r0.15.3", _NPU_42),
    ("4.1", "4.1.99", "2.3.0_core_r0.12.1", _NPU_42),
)
# How to install them where it is not `name` with the required version.
_INSTALL = {"megatron_core": "megatron-core", "mcore_bridge": "mcore-bridge"}


def _pinned() -> Iterator[Needed]:
    for name, since, until, wanted, tested, source in _PINNED:
        yield Needed(
            name=name,
            since=since,
            until=until,
            wanted=wanted,
            tested=tested,
            install=f"pip install '{_INSTALL.get(name, name)}{wanted}'",
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
    Needed(name="torch", wanted=">=2.0", tested="2.8.0/2.11.0", since="4.2", install="pip install torch", source=_NEW),
    Needed(
        name="torch",
        wanted=">=2.0",
        tested="2.8.0/2.10.0",
        since="4.1",
        until="4.1.99",
        install="pip install torch",
        source=f"{_GUIDE} @v4.1.3",
    ),
    Needed(name="torch", wanted=">=2.0", tested="2.8.0", until="4.0.99", install="pip install torch", source=_OLD),
    *(
        Needed(
            name="transformer_engine",
            wanted=">=2.3",
            tested=tested,
            since=since,
            until=until,
            devices=("cuda",),
            install="pip install --no-build-isolation transformer_engine[pytorch]",
            source=source,
        )
        for since, until, tested, source in _ENGINE
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
    *_pinned(),
    Needed(
        name="torch_npu",
        wanted="==2.7.1.post2",
        since="4.1",
        until="4.2.99",
        devices=("npu",),
        install="pip install torch_npu==2.7.1.post2",
        source=_NPU_42,
    ),
    Needed(
        name="torch_npu",
        wanted=">=2.7.1.post4",
        since="4.3",
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
        wanted="==8.5.1",
        tested="8.5.1",
        since="4.1",
        until="4.2.99",
        devices=("npu",),
        install="install CANN 8.5.1",
        source=_NPU_42,
    ),
    Needed(
        name="cann",
        kind="cann",
        wanted=">=8.5.1",
        tested="9.0.0",
        since="4.3",
        devices=("npu",),
        install="install CANN 8.5.1 or later",
        source=_NPU,
    ),
    Needed(name="cann", kind="cann", until="4.0.99", devices=("npu",), install="install CANN", source=_NPU),
    *(
        Needed(
            name="mindspeed",
            since=since,
            until=until,
            devices=("npu",),
            install=f"git clone --branch {branch} https://gitcode.com/Ascend/MindSpeed; pip install -e MindSpeed",
            source=source,
        )
        for since, until, branch, source in _MINDSPEED
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
