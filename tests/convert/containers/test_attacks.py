"""Files made to attack: zips, pickles, safetensors and metadata that lie: one of our own errors, and no effect."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.cli import main
from launcher.convert.containers import safetensors, torch_dist, torch_file
from launcher.convert.containers.errors import ContainerError
from launcher.convert.containers.records import TensorSpec
from launcher.convert.containers.torch_dist import ChunkSpec
from tests.sampling import examples

torch = pytest.importorskip("torch")
_LOCAL = "<4sHHHHHIIIHH"
_CENTRAL = "<4sHHHHHHIIIHHHHHII"


class Runs:
    """What a pickle would run: it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


class Rebuilt:
    """A tensor as a pickle of torch.save has it, with any numbers."""

    def __init__(self, count: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.count, self.parts = count, (offset, shape, strides)

    def __reduce__(self) -> Any:
        return torch._utils._rebuild_tensor_v2, (Storage(self.count), *self.parts, False, {})


class Storage:
    def __init__(self, count: int) -> None:
        self.count = count


def pickled(value: Any) -> bytes:
    class Pickler(pickle.Pickler):
        def persistent_id(self, item: Any) -> Any:
            if isinstance(item, Storage):
                return ("storage", torch.FloatStorage, "0", "cpu", item.count)
            return None

    buffer = io.BytesIO()
    Pickler(buffer, protocol=2).dump(value)
    return buffer.getvalue()


def zipped(entries: dict[str, bytes], *, method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def saved(value: Any, storage: bytes = bytes(16)) -> bytes:
    """What torch.save would write, with a storage of 16 bytes."""
    return zipped({"x/data.pkl": pickled(value), "x/byteorder": b"little", "x/data/0": storage})


def forged(
    records: list[tuple[str, int, int]], bodies: bytes, *, count: int | None = None, size: int | None = None
) -> bytes:
    """Bodies, then a directory that says (name, offset, size) of each entry, true or not."""
    directory = b"".join(
        struct.pack(_CENTRAL, b"PK\x01\x02", 20, 20, 0, 0, 0, 33, 0, length, length, len(name), 0, 0, 0, 0, 0, at)
        + name.encode()
        for name, at, length in records
    )
    end = struct.pack(
        "<4sHHHHIIH",
        *(b"PK\x05\x06", 0, 0, count or len(records), count or len(records)),
        *(size or len(directory), len(bodies), 0),
    )
    return bodies + directory + end


def local(name: str, data: bytes) -> bytes:
    head = struct.pack(_LOCAL, b"PK\x03\x04", 20, 0, 0, 0, 33, crc32(data), len(data), len(data), len(name), 0)
    return head + name.encode() + data


def _overlapping() -> bytes:
    """An entry whose data holds the header and the data of another one."""
    inner = local("x/data/0", bytes(64))
    outer = local("x/data.pkl", inner)
    return forged([("x/data.pkl", 0, len(inner)), ("x/data/0", outer.index(inner), 64)], outer)


def _same_data() -> bytes:
    """Many names of one member: a bomb where entries are unpacked."""
    body = local("x/data.pkl", bytes(1000))
    return forged([("x/data.pkl", 0, 1000)] * 200, body)


BAD_ZIPS: dict[str, Callable[[Path], bytes]] = {
    "a compressed bomb": lambda mark: zipped({"x/data.pkl": bytes(50_000_000)}, method=zipfile.ZIP_DEFLATED),
    "overlapping members": lambda mark: _overlapping(),
    "many names of one member": lambda mark: _same_data(),
    "a member beyond the file": lambda mark: forged([("x/data.pkl", 0, 2**31)], local("x/data.pkl", b"N.")),
    "a directory beyond the file": lambda mark: forged([("x/data.pkl", 0, 2)], local("x/data.pkl", b"N."), size=2**31),
    "more members than there are": lambda mark: forged(
        [("x/data.pkl", 0, 2)], local("x/data.pkl", b"N."), count=60_000
    ),
    "a name outside of the archive's folder": lambda mark: zipped(
        {"x/data.pkl": pickled({}), "../../escape": b"1", "/etc/launch": b"1"}
    ),
    "another name in the header": lambda mark: forged([("x/data.pkl", 0, 2)], local("x/data.xxx", b"N.")),
    "a pickle that runs": lambda mark: saved(Runs(mark)),
    "a pickle that runs inside a tensor's place": lambda mark: saved({"model": {"w": [Runs(mark)]}}),
    "a second pickle": lambda mark: zipped({"x/data.pkl": pickled({}), "x/constants.pkl": pickled(Runs(mark))}),
    "a tensor beyond its storage": lambda mark: saved({"w": Rebuilt(4, 0, (5,), (1,))}),
    "a tensor from beyond its storage": lambda mark: saved({"w": Rebuilt(4, 2**40, (1,), (1,))}),
    "a storage that is smaller than said": lambda mark: saved({"w": Rebuilt(2**40, 0, (2**40,), (1,))}),
    "a huge expanded tensor": lambda mark: saved({"w": Rebuilt(4, 0, (2**40, 4), (0, 1))}),
    "overlapping strides": lambda mark: saved({"w": Rebuilt(4, 0, (3, 2), (1, 1))}),
    "a shape of many dimensions": lambda mark: saved({"w": Rebuilt(4, 0, (1,) * 100_000, (1,) * 100_000)}),
    "negative sizes": lambda mark: saved({"w": Rebuilt(4, 0, (-1, -4), (4, 1))}),
}


@pytest.mark.parametrize("make", BAD_ZIPS.values(), ids=BAD_ZIPS)
def test_zips_that_lie(make: Callable[[Path], bytes], tmp_path: Path) -> None:
    file, mark = tmp_path / "in" / "x.pt", tmp_path / "mark"
    file.parent.mkdir()
    file.write_bytes(make(mark))
    with pytest.raises(ContainerError) as caught:
        torch_file.read(file)
    assert len(str(caught.value)) < 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]
    assert not mark.exists()


def test_a_hole_is_not_read_as_a_pickle(tmp_path: Path) -> None:
    """A sparse member of 60 GB takes no space, and would take all memory."""
    size, name, file = 60 * 2**30, b"x/data.pkl", tmp_path / "x.pt"
    wide = struct.pack("<HHQQ", 1, 16, size, size)
    head = struct.pack(_LOCAL, b"PK\x03\x04", 45, 0, 0, 0, 33, 0, 2**32 - 1, 2**32 - 1, len(name), len(wide))
    record = struct.pack(
        _CENTRAL, b"PK\x01\x02", 45, 45, 0, 0, 0, 33, 0, 2**32 - 1, 2**32 - 1, len(name), 20, 0, 0, 0, 0, 0
    )
    directory, at = record + name + wide, len(head) + len(name) + len(wide) + size
    end = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, len(directory), at)
    end += struct.pack("<4sIQI", b"PK\x06\x07", 0, at + len(directory), 1)
    end += struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 1, 1, len(directory), 2**32 - 1, 0)
    with file.open("wb") as out:
        out.write(head + name + wide)
        out.seek(at)
        out.write(directory + end)
    with pytest.raises(ContainerError, match=r"data\.pkl is too large"):
        torch_file.read(file)


@pytest.mark.parametrize("name", ["model.safetensors.index.json", ".metadata"])
def test_sparse_tables_are_not_read_whole(name: str, tmp_path: Path) -> None:
    if name == ".metadata":
        torch_dist.create(tmp_path, [_chunk()], common={}, content_metadata={})
    with (tmp_path / name).open("ab") as file:
        file.truncate(60 * 2**30)
    with pytest.raises(ContainerError, match="too large"):
        (torch_dist if name == ".metadata" else safetensors).read(tmp_path)


def _chunk() -> ChunkSpec:
    return ChunkSpec(key="w", global_shape=(2, 2), at=(0, 0), shape=(2, 2), dtype="F32")


PLACES = {
    "outside of the folder": "../escape.distcp",
    "an absolute path": "/etc/passwd",
    "a folder below": "sub/x.distcp",
    "nothing": "",
    "a zero byte": "x\0.distcp",
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_metadata_names_files_beside_it_only(place: str, tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    folder = tmp_path / "iter_0000001"
    dcp.save({"w": torch.zeros(2, 2)}, storage_writer=dcp.FileSystemWriter(folder), no_dist=True)
    torch.save({}, folder / "common.pt")
    (folder / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist", "sharded_backend_version": 1}))
    assert len(torch_dist.read(folder).chunks) == 1
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    for info in metadata.storage_data.values():
        info.relative_path = place
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(ContainerError, match="malformed"):
        torch_dist.read(folder)


def _safetensors(header: object, data: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + data


def _entry(dtype: str = "F32", shape: tuple[int, ...] = (2, 2), offsets: tuple[int, int] = (0, 16)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


BAD_SAFETENSORS: dict[str, bytes] = {
    "a header of all the memory": (2**63 - 1).to_bytes(8, "little") + b"{}",
    "a header longer than the file": (100).to_bytes(8, "little") + b"{}",
    "an empty file": b"",
    "overlapping tensors": _safetensors({"a": _entry(), "b": _entry(offsets=(8, 24))}, bytes(24)),
    "the same bytes twice": _safetensors({"a": _entry(), "b": _entry()}, bytes(16)),
    "a gap": _safetensors({"a": _entry(), "b": _entry(offsets=(20, 36))}, bytes(36)),
    "another type than its bytes": _safetensors({"a": _entry("F64")}, bytes(16)),
    "an unknown type": _safetensors({"a": _entry("F32 ")}, bytes(16)),
    "a name twice": _safetensors(
        b'{"a":' + json.dumps(_entry()).encode() + b',"a":' + json.dumps(_entry()).encode() + b"}", bytes(16)
    ),
    "a shape whose product overflows": _safetensors({"a": _entry(shape=(2**40, 2**40))}, bytes(16)),
    "a shape of booleans": _safetensors({"a": {**_entry(), "shape": [True, True]}}, bytes(16)),
    "offsets below zero": _safetensors({"a": _entry(offsets=(-16, 0))}, bytes(16)),
    "infinite sizes": _safetensors(b'{"a":{"dtype":"F32","shape":[1e999],"data_offsets":[0,16]}}', bytes(16)),
    "nesting without end": _safetensors(b'{"a":' * 50_000),
    "metadata that is a tree": _safetensors({"__metadata__": {"a": {"b": "c"}}}),
    "a digit bomb": _safetensors(
        b'{"a":{"dtype":"F32","shape":[' + b"9" * 200_000 + b'],"data_offsets":[0,16]}}', bytes(16)
    ),
}


@pytest.mark.parametrize("data", BAD_SAFETENSORS.values(), ids=BAD_SAFETENSORS)
def test_safetensors_that_lie(data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Through the reader, and through the command: one screen, no traceback, nothing left."""
    folder, out = tmp_path / "hf", tmp_path / "out"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(ContainerError):
        safetensors.read(folder)
    (folder / "config.json").write_text(json.dumps(_CONFIG))
    for args in (["hf-to-mcore", "--model", str(folder), "--out", str(out)], ["verify", str(folder), str(folder)]):
        assert main(["convert", *args]) == 1
        captured = capsys.readouterr().err
        assert "Traceback" not in captured
        assert 0 < len(captured.splitlines()) < 30
        assert len(captured) < 5000
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4,
    "intermediate_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 4,
    "max_position_embeddings": 8,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}


@given(
    names=st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=4, unique=True),
    lies=st.lists(st.tuples(st.integers(0, 3), st.integers(-(2**64), 2**64)), min_size=1, max_size=3),
)
@examples(60)
def test_any_numbers_in_a_header_end_in_our_own_error_or_stay_inside_the_file(
    names: list[str], lies: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    header = {name: _entry(offsets=(16 * place, 16 * place + 16)) for place, name in enumerate(names)}
    for number, (place, value) in enumerate(lies):
        entry = header[names[number % len(names)]]
        (entry["shape"] if place < 2 else entry["data_offsets"])[place % 2] = value
    path = tmp_path_factory.mktemp("lies") / "model.safetensors"
    path.write_bytes(_safetensors(header, bytes(16 * len(names))))
    try:
        slots = safetensors.read(path).slots
    except ContainerError:
        return
    size = path.stat().st_size
    assert all(slot.offset + 4 * slot.shape[0] * slot.shape[1] <= size for slot in slots)


def test_a_file_that_is_no_file_is_refused(tmp_path: Path) -> None:
    """Opening a pipe would wait for ever."""
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(ContainerError, match="not a file"):
        safetensors.read(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    os.symlink("/dev/zero", tmp_path / "model.safetensors")
    with pytest.raises(ContainerError, match="not a file"):
        safetensors.read(tmp_path)
    safetensors.create_file(tmp_path / "real", [TensorSpec(name="a", shape=(1,), dtype="F32")])
