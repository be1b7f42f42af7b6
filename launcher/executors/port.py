"""Replaces the rendezvous port by a free one of this machine, so that two jobs do not share a port."""

import re
import socket
from dataclasses import replace

from launcher.plan import LaunchPlan, NodePlan

_OPTION = re.compile(r"--?master[_-]port")
_VARIABLE = "MASTER_PORT"


def on_free_port(node: NodePlan) -> NodePlan:
    """Return the node with a free port in place of its rendezvous port; no other number is changed.

    Also where that port is free still: a run with the same name may have been started a second ago, and not listen yet.
    """
    places = [place for index in range(len(node.argv)) if (place := _place(index, node.argv))]
    taken = places[0][1] if places else node.env.get(_VARIABLE)
    if taken is None or not taken.isdigit():
        return node
    free = _free_port()
    argv = list(node.argv)
    for index, port in places:
        if port == taken:
            argv[index] = argv[index].removesuffix(taken) + free
    env = {key: free if key == _VARIABLE and value == taken else value for key, value in node.env.items()}
    return replace(node, argv=tuple(argv), env=env)


def with_port_reference(plan: LaunchPlan) -> LaunchPlan:
    """Return the plan with `${MASTER_PORT}` as its rendezvous port, unless the user chose the port."""
    if plan.start.port is not None:
        return plan
    return replace(plan, nodes=tuple(with_port(node, f"${{{_VARIABLE}}}") for node in plan.nodes))


def with_port(node: NodePlan, port: str) -> NodePlan:
    """Return the node with another rendezvous port, in its options and in its MASTER_PORT variable."""
    argv = list(node.argv)
    places = [place for index in range(len(argv)) if (place := _place(index, node.argv))]
    for index, old in places:
        argv[index] = argv[index].removesuffix(old) + port
    # Without a port option the variable sets the port.
    env = {key: port if key == _VARIABLE else value for key, value in node.env.items()}
    return replace(node, argv=tuple(argv), env=env)


def _place(index: int, argv: tuple[str, ...]) -> tuple[int, str] | None:
    """Return the index of the word with the port, and the port, if the word at `index` is the port option."""
    option, equals, value = argv[index].partition("=")
    if not _OPTION.fullmatch(option):
        return None
    if equals:
        return index, value
    return (index + 1, argv[index + 1]) if index + 1 < len(argv) else None


def is_free(port: int) -> bool:
    """Return whether no process listens on a port here."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
