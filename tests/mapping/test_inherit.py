"""A table made of another backend's: rows replaced, dropped, renamed and respelled, and what is refused when loaded."""

from typing import Any

import pytest

from launcher.catalogue.catalogue import Argument
from launcher.job import Job
from launcher.job.derive import with_values
from launcher.mapping.inherit import extend, holding, renamed
from launcher.mapping.rows import NativeView, Row, Unsupported, computed, same, switch, switch_off

TP, PP, VPP, SEED = "parallel.tp", "parallel.pp", "parallel.vpp", "seed"
BASE = (
    switch("parallel.sequence_parallel", "sequence-parallel"),
    same(TP, "tensor-size", until="0.9"),
    same(TP, "tensor-parallel-size", since="1.0"),
    same(PP, "pipeline-size"),
    same(SEED, "seed"),
)


def flags(rows: tuple[Row, ...]) -> list[str]:
    return [flag for row in rows for flag in row.flags]


@pytest.mark.parametrize(
    ("version", "change", "expected"),
    [
        ("1.0", {}, ["sequence-parallel", "tensor-parallel-size", "pipeline-size", "seed"]),
        ("0.9", {"drop": (PP,)}, ["sequence-parallel", "tensor-size", "seed"]),
        ("1.0", {"drop": (PP, SEED), "rename": {"tensor-parallel-size": "tp"}}, ["sequence-parallel", "tp"]),
        (
            "1.0",
            {"replace": {TP: (same(TP, "tp"), same(VPP, "chunks"))}, "drop": (SEED,)},
            ["sequence-parallel", "tp", "chunks", "pipeline-size"],
        ),
    ],
    ids=["as it is", "dropped", "renamed", "replaced in place"],
)
def test_rows_keep_the_order_of_the_extended_table(version: str, change: dict[str, Any], expected: list[str]) -> None:
    assert flags(extend(BASE, version, **{"replace": {}, **change})) == expected


def test_a_field_that_only_later_versions_have_is_added_at_the_end() -> None:
    base = (*BASE, same(VPP, "chunks", since="2.0"))
    assert flags(extend(base, "1.0", replace={VPP: (same(VPP, "vpp"),)}))[-2:] == ["seed", "vpp"]


def test_without_a_version_each_argument_that_is_accepted_comes_once() -> None:
    base = (*BASE, same(PP, "pipeline-size", since="1.0"))
    rows = extend(base, replace={}, respell=lambda row: None if row.flags == ("tensor-size",) else row)
    assert flags(rows) == ["sequence-parallel", "tensor-parallel-size", "pipeline-size", "seed"]


@pytest.mark.parametrize(
    "change",
    [{"drop": ("parallel.cp",)}, {"replace": {"parallel.cp": ()}}, {"rename": {"context-size": "cp"}}],
    ids=["drop", "replace", "rename"],
)
def test_a_row_that_does_not_exist_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"parallel\.cp|context-size"):
        extend(BASE, "1.0", **{"replace": {}, **change})


def test_a_renamed_row_writes_and_reads_the_other_name() -> None:
    def read(view: NativeView) -> dict[str, Any]:
        view.values["seen"] = True
        return {TP: view.take("tensor-size", 1), PP: view.peek("pipeline-size")}

    row = renamed(
        computed((TP, PP), ("tensor-size",), lambda job: (("tensor-size", job.parallel.tp),), read),
        {"tensor-size": "tp", "pipeline-size": "pp"},
    )
    view = NativeView({"tp": 4, "pp": 2, "tensor-size": 8})
    assert row.read is not None
    assert (row.flags, list(row.emit(Job()))) == (("tp",), [("tp", 1)])
    assert (row.read(view), view.taken) == ({TP: 4, PP: 2}, {"tp"})
    assert view.values == {"tp": 4, "pp": 2, "tensor-size": 8, "seen": True}


def argument(name: str, **declared: Any) -> Argument:
    return Argument(name=name, dest=name, **declared)


@pytest.mark.parametrize(
    ("row", "values", "written"),
    [
        (holding(SEED, argument("seed", type="int")), {SEED: 7}, 7),
        (holding("overlap.p2p", argument("p2p", type="bool")), {"overlap.p2p": False}, False),
        (holding("overlap.p2p", argument("no_p2p", type="bool"), inverted=True), {"overlap.p2p": False}, True),
        (holding("recompute.modules", argument("modules", nargs="+")), {"recompute.modules": ("mlp",)}, ("mlp",)),
        (holding("optimizer.type", argument("kind", choices=("sgd", "adam"))), {"optimizer.type": "sgd"}, "sgd"),
    ],
    ids=["number", "switch with a value", "inverted", "list", "choice"],
)
def test_the_catalogue_says_how_an_argument_holds_a_value(row: Row, values: dict[str, Any], written: Any) -> None:
    (path,) = values
    assert list(row.emit(with_values(Job(), values))) == [(row.flags[0], written)]
    assert row.read is not None
    assert row.read(NativeView({row.flags[0]: written})) == values
    assert row.fields == (path,)


def test_a_value_that_the_version_does_not_have_is_refused_with_those_that_work() -> None:
    row = holding("optimizer.type", argument("kind", choices=("sgd", "adam")))
    with pytest.raises(Unsupported, match="it knows adam, sgd") as refused:
        list(row.emit(with_values(Job(), {"optimizer.type": "muon"})))
    assert refused.value.works == ("optimizer.type=adam", "optimizer.type=sgd")
    assert row.read is not None
    assert row.read(NativeView({"kind": "lion"})) == {}


@pytest.mark.parametrize(
    ("row", "codec"),
    [(same(SEED, "seed"), "value"), (switch_off("overlap.p2p", "no-p2p"), "inverted")],
    ids=["value", "inverted"],
)
def test_plain_rows_say_how_they_hold_their_field(row: Row, codec: str) -> None:
    assert row.codec == codec
