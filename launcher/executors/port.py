"""A free rendezvous port on this machine in place of one that is taken: two jobs must not meet each other."""

import re
import socket
from dataclasses import replace

from launcher.plan import LaunchPlan, NodePlan

_OPTION = re.compile(r"--?master[_-]port")
_VARIABLE = "MASTER_PORT"


def on_free_port(node: NodePlan) -> NodePlan:
    """Return the node with a free port in place of a rendezvous port that is taken; no other number is touched."""
    places = [place for index in range(len(node.argv)) if (place := _place(index, node.argv))]
    taken = places[0][1] if places else node.env.get(_VARIABLE)
    if taken is None or not taken.isdigit() or is_free(int(taken)):
        return node
    free = _free_port()
    argv = list(node.argv)
    for index, port in places:
        if port == taken:
            argv[index] = argv[index].removesuffix(taken) + free
    env = {key: free if key == _VARIABLE and value == taken else value for key, value in node.env.items()}
    return replace(node, argv=tuple(argv), env=env)


def with_port_reference(plan: LaunchPlan) -> LaunchPlan:
    """Return the plan with `${MASTER_PORT}` for its rendezvous port, unless the user chose the port."""
    if plan.start.port is not None:
        return plan
    return replace(plan, nodes=tuple(with_port(node, f"${{{_VARIABLE}}}") for node in plan.nodes))


def with_port(node: NodePlan, port: str) -> NodePlan:
    """Return the node with another rendezvous port, in its options and in its variable of that name."""
    argv = list(node.argv)
    places = [place for index in range(len(argv)) if (place := _place(index, node.argv))]
    for index, old in places:
        argv[index] = argv[index].removesuffix(old) + port
    # Without an option of that name the variable is what tells the port.
    env = {key: port if key == _VARIABLE else value for key, value in node.env.items()}
    return replace(node, argv=tuple(argv), env=env)


def _place(index: int, argv: tuple[str, ...]) -> tuple[int, str] | None:
    """Return the index of the word that holds the port and the port, where the word at `index` is its option."""
    option, equals, value = argv[index].partition("=")
    if not _OPTION.fullmatch(option):
        return None
    if equals:
        return index, value
    return (index + 1, argv[index + 1]) if index + 1 < len(argv) else None


def is_free(port: int) -> bool:
    """Tell whether nobody listens to a port here."""
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
