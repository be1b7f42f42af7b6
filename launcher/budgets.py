"""Upper limits on the size of inputs, checked before memory or time is spent.

Each limit is far above what any real job needs and far below what exhausts a machine. It is not configurable: an input
that exceeds it is a typing error or an attack.
"""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple


class Budget(NamedTuple):
    """An upper limit on one kind of input.

    Attributes:
        limit: largest accepted number.
        unit: what is counted.
        why: how the limit compares with real inputs, and what exceeds it.
        works: what to do instead.
    """

    limit: int
    unit: str
    why: str
    works: str


BUDGETS = {
    "yaml bytes": Budget(
        limit=2**20,
        unit="bytes of YAML",
        why="the longest job file, with every field, has 40 KB; YAML is read at about 2 MB/s",
        works="a file without data in it",
    ),
    "yaml values": Budget(
        limit=100_000,
        unit="values in a YAML file, aliases written out",
        why="a job has about 600 fields; nine aliases of nine, ten times over, are 3,000,000,000 values",
        works="a file without aliases (&name, *name)",
    ),
    "nesting": Budget(
        limit=64,
        unit="levels of nesting",
        why="a job has 4, the deepest configuration of a backend 9; Python stops at about 300",
        works="a flatter file",
    ),
    "digits": Budget(
        limit=1_000,
        unit="digits of a whole number",
        why="the largest count of a job has about 15; Python reads 4,300",
        works="a number that a job can have",
    ),
    "json bytes": Budget(
        limit=2**27,
        unit="bytes of JSON",
        why="the index of a checkpoint of 100,000 tensors has 10 MB",
        works="another file: this is not a configuration or an index",
    ),
    "config bytes": Budget(
        limit=2**22,
        unit="bytes of a config.json",
        why="config.json files have 1 to 100 KB (per-layer lists)",
        works="the config.json of a Hugging Face model",
    ),
    "script bytes": Budget(
        limit=2**21,
        unit="bytes of a script",
        why="the longest launch script of 2,000 public ones has 60 KB",
        works="the script that starts the training, without data in it",
    ),
    "layers": Budget(
        limit=100_000,
        unit="layers",
        why="the deepest models have fewer than 200",
        works="the number of layers of the model",
    ),
    "stages": Budget(
        limit=16_384,
        unit="pipeline stages, or chunks of one",
        why="the most in a published run are 64; no model has more layers than fit",
        works="parallel.pp that the devices and layers allow",
    ),
    "experts": Budget(
        limit=65_536,
        unit="experts",
        why="the most in a published model are 512",
        works="the number of experts of a layer",
    ),
    "jobs": Budget(
        limit=10_000,
        unit="jobs in a sweep",
        why="each is composed and checked before the first one starts (about 20 a second)",
        works="fewer values, or several sweeps; for layouts: launch search",
    ),
    "nodes": Budget(
        limit=32_768,
        unit="nodes",
        why="a plan has 4 KB for each; the largest clusters have about 12,500 nodes of 8 devices",
        works="cluster.nodes and cluster.devices_per_node of a real cluster",
    ),
    "devices": Budget(
        limit=4_096,
        unit="devices of a node",
        why="the largest have 384 (a super-node); ranks of a node are started and watched one by one",
        works="cluster.nodes and cluster.devices_per_node of a real cluster",
    ),
    "words": Budget(
        limit=10_000,
        unit="words of one command, array or brace expansion of a script",
        why="the longest training command has about 200; {1..999999999} would take 10 GB",
        works="the script without it",
    ),
    "commands": Budget(
        limit=2_000,
        unit="commands that a script would start",
        why="a grid of hyper-parameters has dozens; each is read as a job",
        works="a script that starts one training; launch -m for a grid",
    ),
}
# Job fields that set a number of parts, with the name of the parts.
FIELDS = {
    "model.num_hidden_layers": "layers",
    "model.num_nextn_predict_layers": "layers",
    "model.num_experts": "experts",
    "parallel.pp": "stages",
    "parallel.vpp": "stages",
    "cluster.nodes": "nodes",
    "cluster.devices_per_node": "devices",
}


# Styles of YAML text that is no number.
_QUOTED = ("'", '"', "|", ">")
_MANY_DIGITS = re.compile(rf"\d{{{BUDGETS['digits'].limit + 1},}}")


class BeyondBudget(Exception):
    """An input exceeds its limit; `works` says what to do, `where` names the input."""

    def __init__(self, name: str, where: str, found: int | None = None) -> None:
        budget = BUDGETS[name]
        self.where, self.works, self.name = where, budget.works, name
        much = f"{found:,}" if found is not None and found < 10**18 else "too many"
        self.message = f"{much} {budget.unit}; the limit is {budget.limit:,} ({budget.why})"
        super().__init__(f"{where}: {self.message}" if where else self.message)


def spend(name: str, count: int, where: str) -> None:
    """Raise an error if a count exceeds its limit.

    Raises:
        BeyondBudget: the count exceeds its limit.
    """
    if count > BUDGETS[name].limit:
        raise BeyondBudget(name, where, count)


def read_limited(path: Path, name: str, where: str = "") -> bytes:
    """Return a file's bytes up to a limit, since a device or a growing file has no end.

    Raises:
        BeyondBudget: the file is larger than the limit.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(BUDGETS[name].limit + 1)
    if len(content) > BUDGETS[name].limit:
        raise BeyondBudget(name, where or str(path))
    return content


def check_yaml(text: str, where: str) -> None:
    """Reject YAML that is nested too deeply or expanded too far by aliases; parses events without building objects.

    Raises:
        BeyondBudget: the text, its depth or its number of values exceeds the limit.
        yaml.YAMLError: the text is not YAML.
    """
    import yaml

    spend("yaml bytes", len(text), where)
    sizes: dict[str, int] = {}  # values below each anchor
    above: list[tuple[str | None, int]] = []  # anchors of the open collections, and the count at their start
    count, deepest, most = 0, BUDGETS["nesting"].limit, BUDGETS["yaml values"].limit
    for event in _yaml_events(text, where):
        if isinstance(event, yaml.ScalarEvent):
            count += 1
            if event.style not in _QUOTED:
                check_digits(event.value, _place(where, event))
            if event.anchor is not None:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.AliasEvent):
            count += sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            above.append((event.anchor, count))
            count += 1
            if len(above) > deepest:
                raise BeyondBudget("nesting", _place(where, event), len(above))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, begun = above.pop()
            if anchor is not None:
                sizes[anchor] = count - begun
        if count > most:
            raise BeyondBudget("yaml values", _place(where, event))


def check_digits(text: str, where: str) -> None:
    """Reject a whole number of so many digits that Python does not convert it.

    Raises:
        BeyondBudget: there is one in the text.
    """
    found = _MANY_DIGITS.search(text)
    if found is not None:
        raise BeyondBudget("digits", where, len(found[0]))


def _yaml_events(text: str, where: str) -> Iterator[Any]:
    import yaml

    try:
        yield from yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        # PyYAML 6.0.4's scanner, which reads ahead of the events, stops at 1,000 levels by itself.
        if "nesting depth" in (error.problem or "") and error.problem_mark is not None:
            raise BeyondBudget("nesting", f"{where}:{error.problem_mark.line + 1}" if where else "") from None
        raise


def _place(where: str, event: Any) -> str:
    return f"{where}:{event.start_mark.line + 1}" if where else ""


def load_json(text: str, where: str) -> Any:
    """Parse JSON text.

    Raises:
        BeyondBudget: the text is nested too deeply, or has a number that Python does not convert.
        json.JSONDecodeError: the text is not JSON.
    """
    try:
        tree = json.loads(text)
    except RecursionError:
        raise BeyondBudget("nesting", where) from None
    except json.JSONDecodeError:
        raise
    except ValueError:
        raise BeyondBudget("digits", where) from None
    if _depth(tree) > BUDGETS["nesting"].limit:
        raise BeyondBudget("nesting", where, _depth(tree))
    return tree


def json_value(text: str) -> Any:
    """Parse the value of an argument as JSON.

    Raises:
        ValueError: the text is not JSON, or nested too deeply.
    """
    try:
        return load_json(text, "")
    except BeyondBudget as error:
        raise ValueError(error.message) from None


def _depth(tree: Any) -> int:
    level, depth = [tree], 0
    while level := [node for node in level if isinstance(node, (dict, list))]:
        depth += 1
        level = [child for node in level for child in _children(node)]
    return depth


def _children(node: Any) -> Iterator[Any]:
    yield from node.values() if isinstance(node, dict) else node


@lru_cache(maxsize=256)
def written_out(layout: str) -> str:
    """Return a pipeline layout such as `Et*3|(tt|)*29,m|L` with its repetitions expanded.

    Source: megatron-core 0.16.1 pipeline_parallel_layer_layout.py (parse_str_to_list).

    Raises:
        BeyondBudget: it has more layers than any model.
    """
    layout = layout.replace(",", "").replace(" ", "")
    total = 0

    def repeated(found: "re.Match[str]") -> str:
        nonlocal total
        times = int(found[2][:18])
        total += len(found[1]) * times
        spend("layers", total, "parallel.layout")
        return found[1] * times

    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        total = len(layout)
        layout = re.sub(pattern, repeated, layout)
    return layout
