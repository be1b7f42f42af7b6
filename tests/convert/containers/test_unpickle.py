"""Pickles are looked at, never run: whatever they name, whatever their bytes."""

from __future__ import annotations

import os
import pickle
import random
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.convert.containers.errors import ContainerError, Damaged, Unsafe
from launcher.convert.containers.records import Inert
from launcher.convert.containers.torch_objects import Walk, load
from tests.convert.containers.bytes_of import outcome
from tests.sampling import examples

PATH = Path("some.pt")


def look(data: bytes, **options: Any) -> Any:
    return Walk(PATH, lambda name, tensor: tensor).run(load(data, PATH, **options))


class Calls:
    """An object whose pickle calls a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def attacks(marker: Path) -> dict[str, bytes]:
    command = f"touch {marker}"
    text = command.encode()
    return {
        "os.system": pickle.dumps(Calls(os.system, command)),
        "os.system by protocol 0": pickle.dumps(Calls(os.system, command), protocol=0),
        "eval": pickle.dumps(Calls(eval, f"open({str(marker)!r}, 'w')")),
        "inside a value": pickle.dumps({"model": [1, Calls(os.system, command)]}, protocol=2),
        "getattr": pickle.dumps(Calls(getattr, "text", "upper")),
        "INST": b"(S'" + text + b"'\nios\nsystem\n.",
        "OBJ": b"(cos\nsystem\nS'" + text + b"'\no.",
        "EXT1": b"\x82\x01.",
        "a name only": b"cposix\nsystem\n.",
        "a dotted name": b"\x80\x04\x8c\x08builtins\x8c\x0b__import__.x\x93.",
        "under a known module": b"cmegatron.core\nos.system\n(X\x01\0\0\0xtR.",
        "io.open": b"c_io\nopen\n(X\x01\0\0\0xtR.",
        "numpy's runner": b"cnumpy.testing._private.utils\nrunstring\n(X\x01\0\0\0x}tR.",
        "a state with a setter": b"cargparse\nNamespace\n)\x81}X\x0c\0\0\0__setstate__cos\nsystem\nsb.",
        "a persistent id": b"cos\nsystem\nQ.",
    }


@pytest.mark.parametrize("name", attacks(Path("x")))
def test_nothing_is_executed(tmp_path, name):
    marker = tmp_path / "executed"
    found = outcome(lambda: look(attacks(marker)[name]))
    assert isinstance(found, (Unsafe, Damaged, Inert))  # recorded by name it is data, whatever it is called
    assert not marker.exists()


def test_the_refusal_names_the_function():
    with pytest.raises(Unsafe, match=r"posix\.system.*nothing was executed"):
        look(pickle.dumps(Calls(os.system, "true")))


def test_a_class_is_recorded_only_where_its_module_is_allowed():
    data = b"cmy_package.enums\nKind\n(K\x03tR."
    with pytest.raises(Unsafe, match=r"my_package\.enums\.Kind"):
        look(data)
    value = look(data, allow=("my_package.",))
    assert (value.name, value.made, value.arguments) == ("my_package.enums.Kind", "call", (3,))


VALUES = {
    "nest": {"a": [1, (2.5, None, True), {"b": b"x" * 300}], 3: "é", None: -1},
    "big integers": [2**31, -(2**31), 2**63, -(2**200), 255, 256, 65536],
    "long text": "x" * 300,
    "sets": {"s": {1, 2}, "f": frozenset({3})},
    "ordered": OrderedDict(a=1),
    "complex": 1 + 2j,
    "bytearray": bytearray(b"ab\xff"),
    "empty": [(), [], {}, set(), "", b""],
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", VALUES)
def test_plain_values_are_read_as_pickle_reads_them(name, protocol):
    assert look(pickle.dumps(VALUES[name], protocol=protocol)) == pickle.loads(pickle.dumps(VALUES[name]))


def test_defaultdict_is_read_as_a_dict():
    assert look(pickle.dumps({"d": defaultdict(dict, a=1)})) == {"d": {"a": 1}}


def test_objects_are_recorded_with_their_state():
    value = look(pickle.dumps(SimpleNamespace(a=1, b=[2])))
    assert (value.name, dict(value.attributes)) == ("types.SimpleNamespace", {"a": 1, "b": [2]})


BOMBS = {
    "a memo of four thousand million": b"Nr\xff\xff\xff\xff0.",
    "bytes of an exabyte": b"\x8e" + (2**60).to_bytes(8, "little") + b".",
    "bytearray of an exabyte": b"\x96" + (2**60).to_bytes(8, "little") + b".",
    "an integer of a gigabyte": b"\x8b\xff\xff\xff\x3f.",
    "a key of many tuples": b"}" + b")" + b"\x85" * 100_000 + b"Ns.",
    "many lists": b"(" + b"]" * 100_000 + b"l.",
    "a nest of many lists": b"]" * 100_000 + b"a" * 99_999 + b".",
    "itself": b"]q\0h\0a.",
    "itself through a dict": b"}q\0K\x01h\0s.",
    "no stop": b"N",
    "nothing": b"",
    "two values": b"NN.",
    "a mark": b"(.",
    "a mark in a tuple": b"((\x85.",
    "pop of nothing": b"0.",
    "unknown opcode": b"\xff.",
    "long digits": b"L" + b"9" * 10_000 + b"L\n.",
}


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS)
def test_malformed_and_greedy_pickles_are_damaged_or_harmless(data):
    assert isinstance(outcome(lambda: look(data)), Damaged) or data in (
        BOMBS["many lists"],
        BOMBS["a memo of four thousand million"],
    )


def test_sharing_without_end_is_refused():
    """Thirty lists that each hold the one before twice are a thousand million values."""
    double = (b"0](h%ch%ceq%c" % (depth, depth, depth + 1) for depth in range(34))
    data = b"]q\0" + b"".join(double) + b"."
    with pytest.raises(Damaged, match="too often"):
        Walk(PATH, lambda name, tensor: tensor, most=100_000).run(load(data, PATH))


SEEDS = [pickle.dumps(value, protocol=protocol) for value in VALUES.values() for protocol in (0, 2, 4)]


@given(seed=st.integers(0, 2**32))
@examples(1500)
def test_flipped_bytes_end_in_a_value_or_in_our_own_error(seed):
    chance = random.Random(seed)
    data = bytearray(chance.choice(SEEDS))
    for _ in range(chance.randrange(1, 5)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    found = outcome(lambda: look(bytes(data)))
    assert not isinstance(found, ContainerError) or "some.pt" in str(found)


@given(data=st.binary(max_size=60))
@examples(1500)
def test_random_bytes_end_in_a_value_or_in_our_own_error(data):
    found = outcome(lambda: look(data))
    assert not isinstance(found, ContainerError) or "some.pt" in str(found)


def test_a_counter_is_refused_by_its_name():
    with pytest.raises(Unsafe, match=r"collections\.Counter"):
        look(pickle.dumps(Counter("ab")))
