"""Files of torch.save: ours load with torch in every way it has, torch's are read as they are, without torch."""

from __future__ import annotations

import argparse
import io
import random
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.convert.containers import torch_file
from launcher.convert.containers.archive import seal
from launcher.convert.containers.dtypes import TORCH_NAMES, nbytes
from launcher.convert.containers.errors import ContainerError, Damaged, Unsupported
from launcher.convert.containers.records import Dtype, Inert, TensorSpec, namespace
from tests.conftest import ROOT
from tests.convert.containers import bytes_of
from tests.convert.containers.strategies import VALUES, tensors
from tests.sampling import examples

torch = pytest.importorskip("torch")
LOADS = [{"weights_only": only, "mmap": mapped} for only in (True, False) for mapped in (True, False)]


@pytest.fixture(scope="module", autouse=True)
def known_classes():
    """What megatron-core registers (megatron/core/safe_globals.py)."""
    with torch.serialization.safe_globals([argparse.Namespace, io.BytesIO]):
        yield


def plain(value: Any) -> Any:
    """What torch.load makes of a structure that we wrote, tensors aside."""
    if isinstance(value, Dtype):
        return getattr(torch, TORCH_NAMES[value.name])
    if isinstance(value, Inert):
        return argparse.Namespace(**plain(value.state))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(item) for item in value)
    return value


def like(one: Any, other: Any) -> bool:
    """Compare structures in which inert records are compared by what they say."""
    if isinstance(one, Inert) and isinstance(other, Inert):
        return one.name == other.name and one.made == other.made and like(one.state or None, other.state or None)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(like(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(like, one, other))
    return bool(one == other)


def raw(tensor: Any) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


@pytest.mark.slow
@given(wanted=tensors(), load=st.sampled_from(LOADS))
@examples(60)
def test_torch_loads_what_was_created_and_filled(wanted, load):
    with TemporaryDirectory() as place:
        path = Path(place) / "model_optim_rng.pt"
        structure = {"model": {tensor.name: tensor for tensor in wanted}, "iteration": 7}
        slots = torch_file.create(path, structure)
        bytes_of.fill(slots)
        loaded = torch.load(path, **load)
        assert loaded["iteration"] == 7
        for tensor, slot in zip(wanted, slots, strict=True):
            real = loaded["model"][tensor.name]
            assert (tuple(real.shape), real.dtype) == (slot.shape, getattr(torch, TORCH_NAMES[slot.dtype]))
            assert raw(real) == bytes_of.expected(slot)
            assert slot.offset % 64 == 0
        again = [(slot.shape, slot.dtype, slot.offset) for slot in bytes_of.slots(torch_file.read(path))]
        assert again == [(slot.shape, slot.dtype, slot.offset) for slot in slots]


@given(value=VALUES)
@examples(150)
def test_values_survive_in_torch_and_here(value):
    with TemporaryDirectory() as place:
        path = Path(place) / "x.pt"
        torch_file.create(path, {"args": value})
        for load in LOADS[::2]:
            assert torch.load(path, **load) == {"args": plain(value)}
        assert like(torch_file.read(path), {"args": value})
        torch.save({"args": plain(value)}, Path(place) / "y.pt")
        assert like(torch_file.read(Path(place) / "y.pt"), {"args": value})


@given(wanted=tensors(st.sampled_from([name for name in TORCH_NAMES if name != "C64"])))
@examples(40)
def test_files_of_torch_are_read(wanted):
    values = {}
    for spec in wanted:
        data = bytearray(bytes_of.booleans(spec.name, nbytes(spec))) or bytearray(8)
        flat = torch.frombuffer(data, dtype=torch.uint8)[: nbytes(spec)]
        values[spec.name] = flat.clone().view(getattr(torch, TORCH_NAMES[spec.dtype])).reshape(spec.shape)
    with TemporaryDirectory() as place:
        path = Path(place) / "x.pt"
        torch.save({"model": values}, path)
        read = torch_file.read(path)["model"]
        assert list(read) == [spec.name for spec in wanted]
        for spec in wanted:
            assert (read[spec.name].name, read[spec.name].shape) == (f"model.{spec.name}", spec.shape)
            assert read[spec.name].dtype == spec.dtype
            assert bytes_of.stored(read[spec.name]) == raw(values[spec.name])


def test_every_kind_of_object_of_a_megatron_checkpoint_is_read(tmp_path):
    linear = torch.nn.Linear(2, 3)
    whole = torch.arange(12.0)
    saved = {
        "args": argparse.Namespace(
            params_dtype=torch.bfloat16, path=Path("/data"), names={"a", "b"}, device=torch.device("cpu")
        ),
        "model": linear.state_dict(),
        "parameter": torch.nn.Parameter(whole[4:8].view(2, 2)),
        "extra": io.BytesIO(b"state"),
        "raw": b"\x00\xff",
        "shape": torch.Size([2, 3]),
    }
    torch.save(saved, tmp_path / "x.pt")
    read = torch_file.read(tmp_path / "x.pt")
    attributes = read["args"].attributes
    assert read["args"].name == "argparse.Namespace"
    assert attributes["params_dtype"] == Dtype(name="BF16")
    assert (attributes["names"], attributes["path"].arguments) == ({"a", "b"}, ("/", "data"))
    assert bytes_of.stored(read["model"]["weight"]) == raw(linear.weight.detach())
    assert bytes_of.stored(read["parameter"]) == raw(whole[4:8])
    assert read["extra"].state[0] == b"state"
    assert (read["raw"], read["shape"]) == (b"\x00\xff", (2, 3))


def test_extra_states_are_written_as_transformer_engine_stores_them(tmp_path):
    torch_file.create(
        tmp_path / "x.pt", [bytes_of.bytes_io(b"abc"), TensorSpec(name="e", shape=(0,), dtype="U8"), None]
    )
    first, second, third = torch.load(tmp_path / "x.pt", weights_only=True)
    assert (first.read(), second.shape, third) == (b"abc", (0,), None)


def test_reading_needs_no_torch(tmp_path):
    torch_file.create(tmp_path / "x.pt", {"a": TensorSpec(name="a", shape=(2,), dtype="F32")})
    code = f"""
import sys; from pathlib import Path
from launcher.convert import staging
from launcher.convert.containers import torch_file, torch_dist, safetensors, transfer
torch_file.read(Path({str(tmp_path / "x.pt")!r}))
print([name for name in ("torch", "numpy", "safetensors") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("size", [2**32 - 1, 2**32, 5 * 2**31], ids=["below", "at 4 GiB", "above"])
def test_zip64_is_what_torch_and_zipfile_understand(tmp_path, size):
    path = tmp_path / "x.pt"
    structure = {
        "big": TensorSpec(name="big", shape=(size,), dtype="U8"),
        "after": TensorSpec(name="t", shape=(3,), dtype="F32"),
    }
    slots = torch_file.create(path, structure)
    bytes_of.fill(slots[1:])
    assert path.stat().st_blocks * 512 < 1e6
    loaded = torch.load(path, weights_only=True, mmap=True)
    assert loaded["big"].shape == (size,)
    assert int(loaded["big"][-1]) == 0
    assert raw(loaded["after"]) == bytes_of.expected(slots[1])
    assert [slot.offset for slot in bytes_of.slots(torch_file.read(path))] == [slot.offset for slot in slots]
    with zipfile.ZipFile(path) as archive:
        assert archive.getinfo("x/data/0").file_size == size
        assert archive.read("x/byteorder") == b"little"


REFUSED = {
    "transposed": (lambda: torch.zeros(2, 3).t(), "tensor t: not contiguous"),
    "expanded": (lambda: torch.zeros(1).expand(3), "strides"),
    "sparse": (lambda: torch.eye(2).to_sparse(), "sparse"),
    "meta": (lambda: torch.zeros(2, device="meta"), "without data"),
    "complex": (lambda: torch.zeros(2, dtype=torch.complex128), "ComplexDoubleStorage"),
}


@pytest.mark.parametrize("make, message", REFUSED.values(), ids=REFUSED)
def test_what_is_not_rows_of_known_elements_is_refused_by_name(tmp_path, make, message):
    torch.save({"t": make()}, tmp_path / "x.pt")
    with pytest.raises(ContainerError, match=message):
        torch_file.read(tmp_path / "x.pt")


def test_old_formats_are_refused_with_what_works(tmp_path):
    torch.save({"a": torch.zeros(2)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(Unsupported, match=r"before 1\.6"):
        torch_file.read(tmp_path / "old.pt")
    (tmp_path / "tar.pt").write_bytes(bytes(257) + b"ustar" + bytes(300))
    with pytest.raises(Unsupported, match="tar"):
        torch_file.read(tmp_path / "tar.pt")
    (tmp_path / "compressed.pt").write_bytes(b"")
    with zipfile.ZipFile(tmp_path / "compressed.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", b"1" * 99)
    with pytest.raises(Unsupported, match="compressed"):
        torch_file.read(tmp_path / "compressed.pt")


def test_a_tensor_saved_twice_is_two_slots_of_the_same_bytes(tmp_path):
    shared = torch.arange(4.0)
    torch.save({"a": shared, "b": shared, "c": shared[2:]}, tmp_path / "x.pt")
    a, b, c = bytes_of.slots(torch_file.read(tmp_path / "x.pt"))
    assert (a.name, b.name, c.name) == ("a", "b", "c")
    assert (a.offset, c.offset) == (b.offset, a.offset + 8)


def example(place: Path) -> Path:
    structure = {"args": namespace(a=1), "model": {"w": TensorSpec(name="w", shape=(2, 3), dtype="BF16")}}
    torch_file.create(place / "x.pt", structure)
    return place / "x.pt"


@pytest.mark.parametrize("keep", [0, 3, 4, 100, 400, -1])
def test_a_truncated_file_is_damaged(tmp_path, keep):
    path = example(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(Damaged):
        torch_file.read(path)


def test_a_changed_name_in_the_pickle_is_noticed(tmp_path):
    path = example(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"model", b"modal"))
    with pytest.raises(Damaged, match=r"data\.pkl is corrupt"):
        torch_file.read(path)


def test_bytes_after_the_archive_are_noticed(tmp_path):
    path = example(tmp_path)
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(Damaged, match="after the end"):
        torch_file.read(path)


@given(seed=st.integers(0, 2**32))
@examples(400)
def test_flipped_and_missing_bytes_end_in_our_own_error(seed):
    chance = random.Random(seed)
    with TemporaryDirectory() as place:
        path = example(Path(place))
        data = bytearray(path.read_bytes())
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.choice([len(data), len(data), chance.randrange(len(data))])])
        found = bytes_of.outcome(lambda: torch_file.read(path))
        assert not isinstance(found, ContainerError) or str(path) in str(found)
        assert all(len(bytes_of.stored(slot)) == nbytes(slot) for slot in bytes_of.slots(found))


@given(wanted=tensors())
@examples(40)
def test_sealed_files_have_the_checksums_that_zip_tools_want(wanted):
    with TemporaryDirectory() as place:
        path = Path(place) / "x.pt"
        slots = torch_file.create(path, {"model": {tensor.name: tensor for tensor in wanted}})
        bytes_of.fill(slots)
        for _ in range(2):
            seal(path)
            with zipfile.ZipFile(path) as archive:
                assert archive.testzip() is None
        again = [(slot.shape, slot.dtype, slot.offset) for slot in bytes_of.slots(torch_file.read(path))]
        assert again == [(slot.shape, slot.dtype, slot.offset) for slot in slots]
        if not slots or not any(nbytes(slot) for slot in slots):
            return
        big = max(slots, key=nbytes)
        with path.open("r+b") as file:
            file.seek(big.offset)
            first = file.read(1)
            file.seek(big.offset)
            file.write(bytes([first[0] ^ 1]))
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is not None
