"""Dependency versions of MindFormers, from its installation page and package metadata."""

from collections.abc import Iterator

from launcher.catalogue.requirements import Needed

_PAGE = "https://www.mindspore.cn/mindformers/docs/en/{release}/installation.html, version matching"
_PACKAGE = "mindformers {version}, METADATA on PyPI"

# since, until, release of the page, mindspore (wanted, tested), CANN, firmware and driver; "": not specified upstream
_RELEASES = (
    ("1.6", "1.6.99", "r1.6.0", ">=2.7.0rc1,<2.8", "2.7.0", "8.2.RC1", "25.2.0"),
    ("1.7", "1.7.99", "r1.7.0", ">=2.7.1,<2.8", "2.7.1", "8.3.RC1", "25.3.RC1"),
    ("1.8", "1.8.99", "r1.8.0", ">=2.7.2,<2.8", "2.7.2", "8.5.0", "25.5.0"),
    ("1.9", "1.99", "r1.9.0", ">=2.9,<2.10", "2.9.0", "9.0.0", "26.0.RC1"),
    ("2.0", "2.0.99", "", ">=2.10.0,<2.11", "2.10.0", "", ""),
    ("2.1", None, "", ">=2.11.0,<2.12", "2.11.0", "", ""),
)
# name, since, until, wanted, package version with this requirement
_PACKAGES = (
    ("transformers", "1.6", "1.7.99", "==4.51.3", "1.6.0"),
    ("transformers", "1.8", "2.0.99", "==4.57.1", "1.8.0"),
    ("transformers", "2.1", None, ">=5.3.0", "2.1.0"),
    ("tokenizers", "1.6", "1.7.99", "==0.21.0", "1.6.0"),
    ("datasets", "1.6", "1.6.99", "==2.18.0", "1.6.0"),
    ("datasets", "1.7", "2.0.99", ">=4.0.0", "1.8.0"),
    ("datasets", "2.1", None, ">=5.0.1", "2.1.0"),
    ("numpy", None, None, "<2.0.0", "2.1.0"),
    ("hyper_parallel", "2", None, ">=1.0.0,<1.1", "2.1.0"),
)


def _releases() -> Iterator[Needed]:
    for since, until, release, wanted, tested, toolkit, driver in _RELEASES:
        source = _PAGE.format(release=release) if release else _PACKAGE.format(version=f"{since}.0")
        yield Needed(
            name="mindspore",
            wanted=wanted,
            tested=tested,
            since=since,
            until=until,
            install=f"pip install mindspore=={tested}",
            source=source,
        )
        yield Needed(
            name="cann",
            kind="cann",
            tested=f"{toolkit}, firmware and driver {driver}" if toolkit else "",
            since=since,
            until=until,
            devices=("npu",),
            install=f"install CANN {toolkit} and firmware and driver {driver}" if toolkit else "install CANN",
            source=source if toolkit else "MindSpore's own installation page; MindFormers 2 names no CANN",
        )


def _packages() -> Iterator[Needed]:
    for name, since, until, wanted, version in _PACKAGES:
        yield Needed(
            name=name,
            wanted=wanted,
            since=since,
            until=until,
            install=f"pip install '{name}{wanted}'",
            source=_PACKAGE.format(version=version),
        )


SUPPORT = (
    Needed(
        name="MINDFORMERS_PATH",
        meaning="Your checkout of MindFormers, which has run_mindformer.py.",
        kind="checkout",
        install="git clone --branch v{version} https://gitcode.com/mindspore/mindformers; export MINDFORMERS_PATH=…",
        source="run_mindformer.py is in the source repository only",
    ),
    Needed(
        name="python",
        kind="python",
        wanted=">=3.7",
        tested="3.11.4",
        until="2.0.99",
        source=_PAGE.format(release="r1.8.0"),
    ),
    Needed(
        name="python",
        kind="python",
        wanted=">=3.10",
        tested="3.11.4",
        since="2.1",
        source=_PACKAGE.format(version="2.1.0"),
    ),
    *_releases(),
    *_packages(),
)
