"""safetensors: what is laid out is what the real library reads, and every contradiction is refused by name."""

from __future__ import annotations

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.convert.containers import safetensors
from launcher.convert.containers.errors import ContainerError, Damaged, Unsupported, Unwritable
from launcher.convert.containers.records import TensorSpec
from tests.convert.containers import bytes_of
from tests.convert.containers.strategies import DTYPES, tensors
from tests.sampling import examples

TWO = [TensorSpec(name="a", shape=(2, 3), dtype="BF16"), TensorSpec(name="b", shape=(4,), dtype="F32")]
# What numpy has under its own name; the others are compared as bytes of our own reader only.
NUMPY = ["BOOL", "F16", "F32", "F64", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"]


@given(wanted=tensors(), limit=st.sampled_from([1, 64, 10**9]))
@examples(60)
def test_what_is_created_and_filled_is_read_back(wanted, limit):
    with TemporaryDirectory() as place:
        slots = safetensors.create(Path(place), wanted, shard_bytes=limit)
        assert [(slot.name, slot.shape, slot.dtype) for slot in slots] == [(t.name, t.shape, t.dtype) for t in wanted]
        bytes_of.fill(slots)
        contents = safetensors.read(Path(place))
        assert {slot.name: slot for slot in contents.slots} == {slot.name: slot for slot in slots}
        assert all(bytes_of.stored(slot) == bytes_of.expected(slot) for slot in contents.slots)
        assert contents.metadata == {"format": "pt"}


@given(wanted=tensors(st.sampled_from(NUMPY)))
@examples(40)
def test_the_real_library_reads_the_same(wanted):
    real = pytest.importorskip("safetensors")
    with TemporaryDirectory() as place:
        path = Path(place) / "x.safetensors"
        slots = safetensors.create_file(path, wanted)
        bytes_of.fill(slots)
        with real.safe_open(path, framework="numpy") as file:
            assert file.metadata() == {"format": "pt"}
            assert set(file.keys()) == {slot.name for slot in slots}
            for slot in slots:
                array = file.get_tensor(slot.name)
                assert (array.shape, array.tobytes()) == (slot.shape, bytes_of.expected(slot))


@given(dtype=DTYPES)
@examples(30)
def test_the_real_library_accepts_every_dtype(dtype):
    real = pytest.importorskip("safetensors")
    with TemporaryDirectory() as place:
        path = Path(place) / "x.safetensors"
        safetensors.create_file(path, [TensorSpec(name="a", shape=(2, 3), dtype=dtype)])
        with real.safe_open(path, framework="numpy") as file:
            assert file.get_slice("a").get_dtype() == dtype
            assert file.get_slice("a").get_shape() == [2, 3]


def test_files_of_the_real_library_are_read(tmp_path):
    numpy, real = pytest.importorskip("numpy"), pytest.importorskip("safetensors.numpy")
    arrays = {"é": numpy.arange(6, dtype="int16").reshape(2, 3), "one": numpy.array(3.5), "no": numpy.zeros(0)}
    real.save_file(arrays, tmp_path / "m.safetensors", metadata={"who": "me"})
    contents = safetensors.read(tmp_path)
    assert contents.metadata == {"who": "me"}
    assert {slot.name: bytes_of.stored(slot) for slot in contents.slots} == {k: v.tobytes() for k, v in arrays.items()}


def test_shards_are_named_as_hugging_face_names_them(tmp_path):
    wanted = [TensorSpec(name=f"t{index}", shape=(10,), dtype="U8") for index in range(5)]
    safetensors.create(tmp_path, wanted, shard_bytes=20)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 50}
    assert index["weight_map"]["t4"] == "model-00003-of-00003.safetensors"
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == [
        f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)
    ]


def test_sixty_gigabytes_take_no_space(tmp_path):
    wanted = [TensorSpec(name=f"t{index}", shape=(6 * 2**29,), dtype="BF16") for index in range(20)]
    safetensors.create(tmp_path, wanted)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) > 60e9
    assert sum(path.stat().st_blocks * 512 for path in tmp_path.iterdir()) < 1e6
    assert len(safetensors.read(tmp_path).slots) == 20


def test_an_existing_file_is_not_overwritten(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"mine")
    with pytest.raises(Unwritable, match="exists"):
        safetensors.create(tmp_path, TWO)
    assert (tmp_path / "model.safetensors").read_bytes() == b"mine"


def written(path: Path, header: Any, data: bytes = b"") -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    return path


def entry(dtype: Any = "U8", shape: Any = (2,), offsets: Any = (0, 2)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


HEADERS = {
    "overlap": ({"a": entry(), "b": entry(offsets=(1, 3))}, b"123", "b: overlaps"),
    "gap": ({"a": entry(), "b": entry(offsets=(3, 5))}, b"12345", "b: there is a gap"),
    "wrong size": ({"a": entry(dtype="F32")}, b"12", "expected 8 bytes, found 2"),
    "bytes after the end": ({"a": entry()}, b"123", "bytes after the last tensor"),
    "truncated": ({"a": entry()}, b"1", "truncated"),
    "unknown dtype": ({"a": entry(dtype="Q9")}, b"12", "unknown dtype"),
    "no list of dtype": ({"a": entry(dtype=["F32"])}, b"12", "unknown dtype"),
    "negative": ({"a": entry(shape=(-2,))}, b"12", "not lists of sizes"),
    "not a number": ({"a": entry(shape=(2.0,))}, b"12", "not lists of sizes"),
    "backwards": ({"a": entry(offsets=(2, 0))}, b"12", "found -2"),
    "huge": ({"a": entry(shape=(10**400,))}, b"12", "not lists of sizes"),
    "fields missing": ({"a": {"dtype": "U8"}}, b"12", "does not have exactly"),
    "metadata of numbers": ({"__metadata__": {"a": 1}}, b"", "table of strings"),
    "not UTF-8": (b'{"\xff":1}', b"", "not UTF-8 at byte 10"),
    "not JSON": (b"{1}", b"", "not valid JSON"),
    "a list": (b"[1,2]", b"", "not a safetensors file"),
    "the same name twice": (b'{"a":1,"a":1}', b"", "'a' appears twice"),
    "deep": (b'{"a":' * 100_000, b"", "not valid JSON"),
}


@pytest.mark.parametrize("header, data, message", HEADERS.values(), ids=HEADERS)
def test_a_wrong_header_is_refused(tmp_path, header, data, message):
    path = written(tmp_path / "x.safetensors", header, data)
    with pytest.raises(Damaged, match=message) as caught:
        safetensors.read(path)
    assert str(path) in str(caught.value)


def test_less_than_a_byte_per_element_is_not_supported(tmp_path):
    with pytest.raises(Unsupported, match="less than a byte"):
        safetensors.read(written(tmp_path / "x.safetensors", {"a": entry(dtype="F4")}, b"1"))


@pytest.mark.parametrize("data", [b"", b"1234", b"\xff" * 8, b"\xff\xff\0\0\0\0\0\0{}"])
def test_a_wrong_length_is_refused(tmp_path, data):
    (tmp_path / "x.safetensors").write_bytes(data)
    with pytest.raises(Damaged, match=r"header"):
        safetensors.read(tmp_path / "x.safetensors")


def sharded(place: Path) -> dict[str, Any]:
    safetensors.create(place, TWO, shard_bytes=1)
    index: dict[str, Any] = json.loads((place / safetensors.INDEX).read_text())
    return index


def test_a_missing_shard_is_named(tmp_path):
    sharded(tmp_path)
    (tmp_path / SECOND).unlink()
    with pytest.raises(Damaged, match=r"1 of 2 shards are missing: model-00002-of-00002"):
        safetensors.read(tmp_path)


FIRST, SECOND = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
INDEXES = {
    "a tensor that its shard lacks": (lambda index: index["weight_map"].update(c=FIRST), "tensor c: not where"),
    "a tensor in another shard": (lambda index: index["weight_map"].update(b=FIRST, a=SECOND), "tensor a: not where"),
    "a path": (lambda index: index["weight_map"].update(a="../x.safetensors"), "not a file name"),
    "a zero byte": (lambda index: index["weight_map"].update(a="x\0"), "not a file name"),
    "a number": (lambda index: index["weight_map"].update(a=1), "not a file name"),
    "no map": (lambda index: index.pop("weight_map"), "weight_map"),
    "an empty map": (lambda index: index["weight_map"].clear(), "names no tensors"),
}


@pytest.mark.parametrize("change, message", INDEXES.values(), ids=INDEXES)
def test_an_index_that_contradicts_the_shards_is_refused(tmp_path, change, message):
    index = sharded(tmp_path)
    change(index)
    (tmp_path / safetensors.INDEX).write_text(json.dumps(index))
    with pytest.raises(Damaged, match=message):
        safetensors.read(tmp_path)


def test_a_tensor_that_the_index_forgot_is_refused(tmp_path):
    sharded(tmp_path)
    (tmp_path / SECOND).unlink()
    safetensors.create_file(tmp_path / SECOND, [TWO[1], TensorSpec(name="c", shape=(1,), dtype="U8")])
    with pytest.raises(Damaged, match="tensor c: 1 tensors of the shards are not in the index"):
        safetensors.read(tmp_path)


def test_a_tensor_in_two_shards_is_refused(tmp_path):
    sharded(tmp_path)
    (tmp_path / SECOND).unlink()
    safetensors.create_file(tmp_path / SECOND, TWO)
    with pytest.raises(Damaged, match="stored twice"):
        safetensors.read(tmp_path)


def test_a_directory_without_checkpoint_says_what_would_work(tmp_path):
    with pytest.raises(Damaged, match=r"no \*\.safetensors"):
        safetensors.read(tmp_path)
    with pytest.raises(Damaged, match="no such file"):
        safetensors.read(tmp_path / "nowhere")
    for name in ("a", "b"):
        safetensors.create_file(tmp_path / f"{name}.safetensors", TWO)
    with pytest.raises(Damaged, match="no index"):
        safetensors.read(tmp_path)


@given(seed=st.integers(0, 2**32))
@examples(300)
def test_flipped_and_missing_bytes_end_in_our_own_error(seed):
    chance = random.Random(seed)
    with TemporaryDirectory() as place:
        path = Path(place) / "x.safetensors"
        safetensors.create_file(path, TWO)
        data = bytearray(path.read_bytes())
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data) - 28)] = chance.randrange(256)
        path.write_bytes(data[: chance.choice([len(data), chance.randrange(len(data))])])
        found = bytes_of.outcome(lambda: safetensors.read(path))
        slots = () if isinstance(found, ContainerError) else found.slots
        assert slots or not isinstance(found, ContainerError) or str(path) in str(found)
        assert all(len(bytes_of.stored(slot)) == bytes_of.nbytes(slot) for slot in slots)
