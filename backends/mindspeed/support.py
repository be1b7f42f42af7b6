"""Dependency versions of MindSpeed-LLM, from its release notes and installation guide."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from backends.megatron_lm.support import CHECKOUT
from launcher.catalogue.requirements import Needed
from launcher.records import dataclass

_GUIDE = "MindSpeed-LLM docs/zh/pytorch/training/install_guide.md, release_notes_llm.md @26.1.0"
_PINNED = replace(CHECKOUT, is_backend=False)
_CHECKOUT = "git clone --branch {branch} https://{host}; export {name}=…"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Release:
    """One row of upstream's table of versions.

    Attributes:
        since, until: backend versions that the row is for.
        core, megatron: branches of MindSpeed and Megatron-LM; megatron_wanted: versions of the latter.
        torch, torch_wanted: upstream's text, and a version specifier.
        torch_npu: release of the TorchNPU plug-in, whose package has torch's number.
        cann, cann_wanted: tested, and the range that the compatibility table allows.
        source: document with the table.
    """

    since: str
    until: str | None
    core: str
    megatron: str
    megatron_wanted: str
    torch: str
    torch_wanted: str
    torch_npu: str
    cann: str
    cann_wanted: str
    python: str
    transformers: str
    source: str


_NOTES = "MindSpeed-LLM docs/zh/release_notes_llm.md, tables 1 to 3"
_TABLE = "MindSpeed-LLM README.md, version table"
_CORE_12 = {"megatron": "core_v0.12.1", "megatron_wanted": ">=0.12,<0.13", "torch": "2.7.1", "torch_wanted": "==2.7.1"}

_RELEASES = (
    _Release(
        since="26.1",
        until=None,
        core="26.1.0_core_r0.12.1",
        torch_npu="26.1.0 (also 26.0.0, 7.3.0, 7.2.0)",
        cann="9.1.0",
        cann_wanted=">=8.3rc1,<9.2",
        python=">=3.10,<3.12",
        transformers="5.2.0",
        source=f"{_NOTES} @26.1.0",
        **_CORE_12,
    ),
    _Release(
        since="26.0",
        until="26.0.99",
        core="26.0.0_core_r0.12.1",
        torch_npu="26.0.0",
        cann="9.0.0",
        cann_wanted=">=8.1rc1,<9.1",
        python=">=3.10,<3.12",
        transformers="4.57.1",
        source=f"{_NOTES} @26.0.0",
        **_CORE_12,
    ),
    _Release(
        since="2.3",
        until="2.3.99",
        core="2.3.0_core_r0.12.1",
        torch_npu="7.3.0",
        cann="8.5.0",
        cann_wanted=">=8.0,<8.6",
        python=">=3.10,<3.12",
        transformers="4.57.1",
        source=f"{_TABLE} @2.3.0; {_NOTES} @26.0.0",
        **_CORE_12,
    ),
    _Release(
        since="2.2",
        until="2.2.99",
        core="2.2.0_core_r0.12.1",
        torch_npu="7.2.0",
        cann="8.3.RC1",
        cann_wanted=">=8.0rc2,<8.4",
        python=">=3.10,<3.12",
        transformers="4.57.1",
        source=f"{_TABLE} @2.2.0; {_NOTES} @26.0.0",
        **_CORE_12,
    ),
    _Release(
        since="2.1",
        until="2.1.99",
        core="2.1.0_core_r0.8.0",
        megatron="core_r0.8.0",
        megatron_wanted=">=0.8,<0.9",
        torch="2.1.0, 2.6.0",
        torch_wanted=">=2.1,<2.7",
        torch_npu="7.1.0",
        cann="8.2.RC1",
        cann_wanted="",
        # Its requirements name a transformers version that does not support Python 3.8.
        python=">=3.9,<3.12",
        transformers="4.57.1",
        source=f"{_TABLE} @2.1.0",
    ),
)


def _needed(release: _Release) -> Iterator[Needed]:
    needed = partial(Needed, since=release.since, until=release.until, source=release.source)
    core = _CHECKOUT.format(branch=release.core, host="gitcode.com/Ascend/MindSpeed", name="MINDSPEED_PATH")
    megatron = _CHECKOUT.format(branch=release.megatron, host="github.com/NVIDIA/Megatron-LM", name="MEGATRON_LM_PATH")
    latest = release.torch.rpartition(" ")[2]
    yield needed(name="MINDSPEED_PATH", meaning="Your checkout of MindSpeed.", kind="checkout", install=core)
    yield replace(
        _PINNED,
        wanted=release.megatron_wanted,
        install=megatron,
        since=release.since,
        until=release.until,
        source=release.source,
    )
    yield needed(name="python", kind="python", wanted=release.python, tested="3.10")
    yield needed(
        name="torch", wanted=release.torch_wanted, tested=release.torch, install=f"pip install torch=={latest}"
    )
    yield needed(
        name="torch_npu",
        wanted=release.torch_wanted.replace("==", "~="),
        tested=f"TorchNPU {release.torch_npu}",
        devices=("npu",),
        install=f"pip install torch_npu, for torch {latest}, of TorchNPU {release.torch_npu.partition(' ')[0]}",
    )
    yield needed(
        name="cann",
        kind="cann",
        wanted=release.cann_wanted,
        tested=release.cann,
        devices=("npu",),
        install=f"install CANN {release.cann}",
    )
    yield Needed(
        name="transformers",
        wanted=f"=={release.transformers}",
        install=f"pip install transformers=={release.transformers}",
        since=release.since,
        until=release.until,
        source=f"MindSpeed-LLM requirements.txt @{release.core.partition('_')[0]}",
    )


SUPPORT = (
    Needed(
        name="MINDSPEED_LLM_PATH",
        meaning="Your checkout of MindSpeed-LLM.",
        kind="checkout",
        install="git clone --branch {version} https://gitcode.com/Ascend/MindSpeed-LLM; export MINDSPEED_LLM_PATH=…",
        source=_GUIDE,
    ),
    *(each for release in _RELEASES for each in _needed(release)),
    # Depends on CANN's version; operators of some models need it.
    Needed(
        name="triton_ascend",
        since="26.1",
        tested="3.2.2",
        devices=("npu",),
        install="pip install triton-ascend==3.2.2 --extra-index-url=https://triton-ascend.osinfra.cn/pypi/simple",
        source=f"{_NOTES} @26.1.0",
    ),
    Needed(
        name="triton_ascend",
        since="26.0",
        until="26.0.99",
        tested="3.2.1",
        devices=("npu",),
        install="pip install triton-ascend==3.2.1 --extra-index-url=https://triton-ascend.osinfra.cn/pypi/simple",
        source=f"{_NOTES} @26.1.0",
    ),
)
