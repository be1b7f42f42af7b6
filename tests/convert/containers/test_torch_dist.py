"""torch_dist checkpoints: ours load with torch.distributed.checkpoint, its own are read, contradictions are refused."""

from __future__ import annotations

import json
import random
import shutil
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.convert.containers import torch_dist, torch_file
from launcher.convert.containers.dtypes import STORAGES, TORCH_NAMES
from launcher.convert.containers.errors import ContainerError, Damaged, Unsupported
from launcher.convert.containers.records import TensorSpec, namespace
from launcher.convert.containers.torch_dist import ChunkSpec, ObjectSpec
from launcher.convert.containers.torch_dist_layout import tiling_problem
from launcher.convert.containers.tracker import TRACKER, write_tracker
from tests.convert.containers import bytes_of
from tests.sampling import examples

torch = pytest.importorskip("torch")
COMMON = {"args": namespace(tensor_model_parallel_size=1), "iteration": 1, "checkpoint_version": 3.0}
CONTENT = {"singleton_local_shards": False}


def cuts(size: int, parts: int) -> list[tuple[int, int]]:
    """Divide `size` into at most `parts` uneven pieces: (start, count)."""
    edges = sorted({size * part // parts for part in range(parts + 1)})
    return [(start, end - start) for start, end in pairwise(edges)] or [(0, 0)]


def grid(key: str, shape: tuple[int, ...], parts: tuple[int, ...], dtype: str) -> list[ChunkSpec]:
    blocks = product(*(cuts(size, count) for size, count in zip(shape, parts, strict=True)))
    made = [(tuple(at for at, _ in block), tuple(size for _, size in block)) for block in blocks]
    return [ChunkSpec(key=key, global_shape=shape, at=at, shape=sizes, dtype=dtype) for at, sizes in made]


@st.composite
def checkpoints(draw: st.DrawFn) -> list[ChunkSpec]:
    chunks: list[ChunkSpec] = []
    for number in range(draw(st.integers(1, 4))):
        shape = tuple(draw(st.lists(st.integers(1, 6), max_size=3)))
        parts = tuple(draw(st.integers(1, 3)) for _ in shape)
        dtype = draw(st.sampled_from([name for name in STORAGES if name != "BOOL"]))
        chunks += grid(f"decoder.layers.{number}.weight", shape, parts, dtype)
    return draw(st.permutations(chunks))


def whole(chunks: Any, key: str) -> Any:
    """Put a global tensor together from its chunks' bytes, as numbers of its dtype."""
    parts = [chunk for chunk in chunks if chunk.key == key]
    made = torch.zeros(parts[0].global_shape, dtype=getattr(torch, TORCH_NAMES[parts[0].slot.dtype]))
    for part in parts:
        data = torch.frombuffer(bytearray(bytes_of.stored(part.slot)), dtype=made.dtype).reshape(part.slot.shape)
        made[tuple(slice(at, at + size) for at, size in zip(part.at, part.slot.shape, strict=True))] = data
    return made


def same(one: Any, other: Any) -> bool:
    return one.dtype == other.dtype and torch.equal(
        one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8)
    )


@given(chunks=checkpoints(), file_bytes=st.sampled_from([1, 100, 10**9]))
@examples(40)
def test_torch_loads_what_was_created_and_filled(chunks, file_bytes):
    from torch.distributed import checkpoint as dcp

    with TemporaryDirectory() as place:
        slots = torch_dist.create(Path(place), chunks, common=COMMON, content_metadata=CONTENT, file_bytes=file_bytes)
        assert [(slot.name, slot.shape, slot.dtype) for slot in slots] == [(c.name, c.shape, c.dtype) for c in chunks]
        bytes_of.fill(slots)
        read = torch_dist.read(Path(place))
        assert {chunk.slot.name: chunk.slot for chunk in read.chunks} == {slot.name: slot for slot in slots}
        keys = {chunk.key: chunk for chunk in chunks}
        target = {
            key: torch.zeros(chunk.global_shape, dtype=getattr(torch, TORCH_NAMES[chunk.dtype]))
            for key, chunk in keys.items()
        }
        dcp.load(target, checkpoint_id=place, no_dist=True)
        assert all(same(target[key], whole(read.chunks, key)) for key in keys)


@given(seed=st.integers(0, 2**32))
@examples(15)
def test_what_torch_saves_is_read(seed):
    from torch.distributed import checkpoint as dcp

    torch.manual_seed(seed)
    state = {"a.weight": torch.randn(3, 4).bfloat16(), "b": torch.randn(()), "n": torch.arange(5), "note": "text"}
    with TemporaryDirectory() as place:
        dcp.save(state, checkpoint_id=place, no_dist=True)
        torch_file.create(Path(place) / "common.pt", COMMON)
        (Path(place) / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist"}))
        read = torch_dist.read(Path(place))
        assert {chunk.key for chunk in read.chunks} == {"a.weight", "b", "n"}
        assert all(same(whole(read.chunks, key), state[key]) for key in ("a.weight", "b", "n"))
        assert [entry.key for entry in read.objects] == ["note"]


def example(place: Path) -> Path:
    """A root with one iteration: a tensor in four chunks, another in one, two objects; two .distcp files or more."""
    directory = write_tracker(place, 1)
    directory.mkdir()
    chunks = [*grid("w", (4, 6), (2, 2), "BF16"), *grid("norm", (6,), (1,), "F32")]
    objects = [
        ObjectSpec(key="w._extra_state/shard_0_2", value=bytes_of.bytes_io(b"abc")),
        ObjectSpec(key="w._extra_state/shard_1_2", value=TensorSpec(name="e", shape=(0,), dtype="U8")),
    ]
    slots = torch_dist.create(
        directory, chunks, objects=objects, common=COMMON, content_metadata=CONTENT, file_bytes=2500
    )
    bytes_of.fill(slots)
    return directory


def test_root_tracker_and_directory_are_the_same_checkpoint(tmp_path):
    directory = example(tmp_path)
    from_root, from_directory = torch_dist.read(tmp_path), torch_dist.read(directory)
    assert from_root.chunks == from_directory.chunks
    assert (from_root.directory, from_root.iteration) == (directory, 1)
    assert from_root.content_metadata == CONTENT
    assert from_root.common["args"].attributes == {"tensor_model_parallel_size": 1}
    assert (tmp_path / TRACKER).read_bytes() == b"1"
    assert len(list(directory.glob("__0_*.distcp"))) > 1


def test_a_release_is_found(tmp_path):
    directory = example(tmp_path)
    (tmp_path / TRACKER).unlink()
    write_tracker(tmp_path, "release")
    directory.rename(tmp_path / "release")
    assert torch_dist.read(tmp_path).directory == tmp_path / "release"


def test_objects_are_listed_and_read_on_request(tmp_path):
    example(tmp_path)
    first, second = torch_dist.read(tmp_path).objects
    value, empty = torch_dist.read_object(first), torch_dist.read_object(second)
    assert (first.key, value.name, value.state[0]) == ("w._extra_state/shard_0_2", "_io.BytesIO", b"abc")
    assert (empty.shape, empty.dtype) == ((0,), "U8")


def test_only_the_wanted_tensors_are_opened(tmp_path):
    directory = example(tmp_path)
    norm = next(chunk for chunk in torch_dist.read(tmp_path).chunks if chunk.key == "norm")
    for path in directory.glob("*.distcp"):
        if path != norm.slot.path:
            path.unlink()
    read = torch_dist.read(tmp_path, wanted=lambda key: key == "norm")
    assert ([chunk.key for chunk in read.chunks], read.skipped) == (["norm"], ("w",))


def test_sixty_gigabytes_take_no_space(tmp_path):
    chunks = grid("decoder.layers.mlp.linear_fc1.weight", (60, 2**15, 2**14), (60, 1, 1), "BF16")
    torch_dist.create(tmp_path, chunks, common=COMMON)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) > 60e9
    assert sum(path.stat().st_blocks * 512 for path in tmp_path.iterdir()) < 2e6
    assert len(torch_dist.read(tmp_path).chunks) == 60


TILINGS = {
    "whole": ((4, 6), [((0, 0), (4, 6))], None),
    "grid": ((4, 6), [((0, 0), (2, 6)), ((2, 0), (2, 6))], None),
    "scalar": ((), [((), ())], None),
    "nothing": ((0, 3), [((0, 0), (0, 3))], None),
    "no grid, but exact": ((2, 2), [((0, 0), (1, 2)), ((1, 0), (1, 1)), ((1, 1), (1, 1))], None),
    "a hole": ((4,), [((0,), (2,))], "2 of 4 elements"),
    "out of it": ((4,), [((2,), (3,))], "reaches out"),
    "overlap and hole": ((4,), [((0,), (2,)), ((1,), (2,))], "overlap"),
    "twice": ((2, 2), [((0, 0), (1, 2)), ((0, 0), (1, 2))], "overlap"),
    "dimensions": ((4,), [((0, 0), (4, 1))], "dimensions"),
    "overlap without grid": ((3, 2), [((0, 0), (2, 2)), ((1, 0), (1, 2))], "overlap"),
}


@pytest.mark.parametrize("shape, blocks, problem", TILINGS.values(), ids=TILINGS)
def test_chunks_have_to_tile_their_tensor(shape, blocks, problem):
    found = tiling_problem(shape, blocks)
    assert found is None if problem is None else problem in (found or "")


def test_creation_refuses_what_no_loader_could_put_together(tmp_path):
    half = grid("w", (4,), (2,), "F32")[:1]
    with pytest.raises(ValueError, match="w: its chunks hold 2 of 4"):
        torch_dist.create(tmp_path, half, common=COMMON)
    with pytest.raises(ValueError, match="disagree"):
        torch_dist.create(tmp_path, [*grid("w", (4,), (1,), "F32"), *grid("w", (4,), (1,), "F16")], common=COMMON)
    assert list(tmp_path.iterdir()) == []


def remove(name: str) -> Any:
    return lambda directory: (directory / name).unlink()


def truncate(name: str, count: int) -> Any:
    return lambda directory: (directory / name).write_bytes((directory / name).read_bytes()[:count])


def replace(name: str, old: bytes, new: bytes) -> Any:
    return lambda directory: (directory / name).write_bytes((directory / name).read_bytes().replace(old, new))


DAMAGE = {
    "a missing file": (remove("__0_1.distcp"), "__0_1.distcp: tensor"),
    "a truncated file": (truncate("__0_0.distcp", 900), "truncated"),
    "no metadata": (remove(".metadata"), r"\.metadata: no such file"),
    "truncated metadata": (truncate(".metadata", 300), "malformed"),
    "no table of backends": (remove("metadata.json"), r"metadata\.json: missing"),
    "a broken table of backends": (replace("metadata.json", b"{", b"["), "table of backends"),
    "no common.pt": (remove("common.pt"), r"common\.pt: no such file"),
    "another shape in .metadata": (replace(".metadata", b"K\x04K\x06", b"K\x04K\x08"), "of 32 elements"),
    "another dtype in .metadata": (replace(".metadata", b"torch\nfloat32", b"torch\nint32"), "expected I32"),
    "a path in .metadata": (replace(".metadata", b"__0_0.distcp", b"../0.distcpx"), "malformed"),
}


@pytest.mark.parametrize("damage, message", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_named(tmp_path, damage, message):
    damage(example(tmp_path))
    with pytest.raises(Damaged, match=message):
        torch_dist.read(tmp_path)


def test_another_backend_is_not_supported(tmp_path):
    directory = example(tmp_path)
    (directory / "metadata.json").write_text(json.dumps({"sharded_backend": "zarr"}))
    with pytest.raises(Unsupported, match="zarr"):
        torch_dist.read(tmp_path)


TRACKERS = {"no number": "one", "a path": "../../etc", "gone": "2", "nothing": "", "many digits": "9" * 5000}


@pytest.mark.parametrize("arg", TRACKERS.values(), ids=TRACKERS)
def test_a_wrong_tracker_is_refused(tmp_path, arg):
    example(tmp_path)
    (tmp_path / TRACKER).write_text(arg)
    with pytest.raises(Damaged, match="latest_checkpointed_iteration"):
        torch_dist.read(tmp_path)


def test_a_directory_that_is_none_says_what_is_there(tmp_path):
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(Damaged, match=r"found .*model\.safetensors"):
        torch_dist.read(tmp_path)
    with pytest.raises(Damaged, match="no such directory"):
        torch_dist.read(tmp_path / "nowhere")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return example(tmp_path_factory.mktemp("original"))


@given(seed=st.integers(0, 2**32))
@examples(150)
def test_flipped_bytes_end_in_our_own_error(original, seed):
    chance = random.Random(seed)
    with TemporaryDirectory() as place:
        directory = Path(place) / "iter_0000001"
        shutil.copytree(original, directory)
        victim = chance.choice([".metadata", "common.pt", "__0_0.distcp", "metadata.json"])
        data = bytearray((directory / victim).read_bytes())
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        (directory / victim).write_bytes(data[: chance.choice([len(data), chance.randrange(len(data))])])
        found = bytes_of.outcome(lambda: torch_dist.read(directory))
        if isinstance(found, ContainerError):
            assert str(directory) in str(found)
            return
        assert all(len(bytes_of.stored(chunk.slot)) == bytes_of.nbytes(chunk.slot) for chunk in found.chunks)
        for entry in found.objects:
            value = bytes_of.outcome(lambda entry=entry: torch_dist.read_object(entry))
            assert not isinstance(value, ContainerError) or str(directory) in str(value)
