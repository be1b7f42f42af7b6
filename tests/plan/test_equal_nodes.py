"""The JSON of a plan has one entry for nodes that differ only in their rank, and says of every node what it runs."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from launcher.plan import LaunchPlan, NodePlan
from tests.conftest import Launch
from tests.sampling import examples

TEXT = st.sampled_from(["", "a", "1", "10", "--rank", "x=", "{rank}", "node-"])


def expanded(entries: list[dict[str, Any]]) -> list[NodePlan]:
    """Return the nodes of the entries, as a program would that reads them."""
    nodes = []
    for entry in entries:
        first, last = entry.get("ranks") or (entry["rank"], entry["rank"])
        for rank in range(first, last + 1):
            own = json.loads(json.dumps(entry).replace("{rank}", str(rank))) if "ranks" in entry else entry
            nodes.append(NodePlan(rank=rank, argv=tuple(own["argv"]), env=own["env"], workdir=own["workdir"]))
    return nodes


@st.composite
def plans(draw: st.DrawFn) -> list[NodePlan]:
    """Nodes that are alike, or have their rank in some places, or differ otherwise."""
    made: list[NodePlan] = []
    for _ in range(draw(st.integers(1, 3))):
        words = draw(st.lists(st.tuples(TEXT, st.booleans()), min_size=1, max_size=3))
        for rank in range(len(made), len(made) + draw(st.integers(1, 12))):
            texts = [f"{text}{rank}" if own else text for text, own in words]
            made.append(NodePlan(rank=rank, argv=tuple(texts), env={"NODE_RANK": str(rank), "OF": texts[0]}))
    return made


@given(plans())
@examples(100)
def test_every_node_can_be_read_from_its_entry(nodes: list[NodePlan]) -> None:
    assert expanded(LaunchPlan(nodes=tuple(nodes)).as_tree()["nodes"]) == nodes


def test_ten_thousand_equal_nodes_are_one_entry(launch: Launch) -> None:
    done = launch("dry-run", "+recipe=qwen3_moe", "backend=megatron", "cluster=slurm", "cluster.nodes=10000", "--json")
    (entry,) = done.json["plan"]["nodes"]
    assert entry["ranks"] == [0, 9999]
    assert entry["env"]["NODE_RANK"] == "{rank}"
    assert len(done.out) < 3_000_000
