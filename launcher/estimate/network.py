"""Communication costs: ring and all-to-all models on the slowest link that a group of devices crosses."""

from launcher.estimate.machine import Machine


def _bandwidth(machine: Machine, intra: float, group: int, stride: int) -> float:
    """Return bytes/s of a ring over `group` devices, every `stride`-th of the world.

    Between nodes, the members of a group that share a node also share its network adapters with the other groups of
    that node, one adapter a device. On PCIe, groups that cross the host bridge share it, and longer rings lose part
    of it to their own traffic (measured on A100 PCIe: 17.2, 15.8, 13.3 GB/s in total for rings of 2, 4, 8). In a mesh
    without switches a group has only the links between its own members.
    """
    span = group * stride
    if span <= machine.node:
        if machine.mesh:
            return intra * (group - 1) / max(1, machine.node - 1)
        if machine.shared is not None and span > machine.node // 2:
            left = 1 - 0.07 * (group // 2 - 1)
            return min(intra, machine.shared * left / max(1, min(stride, machine.node // group)))
        return intra
    members = max(1, machine.node // stride)
    return min(intra, machine.inter * members)


def _latency(machine: Machine, group: int, stride: int) -> float:
    step = machine.intra_latency if group * stride <= machine.node else machine.inter_latency
    return machine.start + step * (group - 1)


def all_gather(machine: Machine, size: float, group: int, stride: int) -> float:
    """Return the seconds to gather `size` bytes in total over a group."""
    if group <= 1 or not size:
        return 0.0
    speed = _bandwidth(machine, machine.all_gather, group, stride)
    return size * (group - 1) / group / speed + _latency(machine, group, stride)


def reduce_scatter(machine: Machine, size: float, group: int, stride: int) -> float:
    """Return the seconds to reduce `size` bytes and leave each member its share."""
    if group <= 1 or not size:
        return 0.0
    speed = _bandwidth(machine, machine.reduce_scatter, group, stride)
    return size * (group - 1) / group / speed + _latency(machine, group, stride)


def all_reduce(machine: Machine, size: float, group: int, stride: int) -> float:
    """Return the seconds to sum `size` bytes over a group, each member keeping all of it."""
    if group <= 1 or not size:
        return 0.0
    speed = _bandwidth(machine, machine.all_reduce, group, stride)
    return 2 * size * (group - 1) / group / speed + 2 * _latency(machine, group, stride)


def all_to_all(machine: Machine, size: float, group: int, stride: int) -> float:
    """Return the seconds in which each member sends `size` bytes, in equal parts to all members."""
    if group <= 1 or not size:
        return 0.0
    inside = min(group, max(1, machine.node // stride))
    local = 0.0
    if inside > 1:
        local = size * (inside - 1) / group / _bandwidth(machine, machine.all_to_all, inside, stride)
    remote = size * (group - inside) / group / machine.inter if group > inside else 0.0
    return max(local, remote) + _latency(machine, group, stride)


def dispatch(machine: Machine, size: float, copies: float, nodes_reached: float, group: int, stride: int) -> float:
    """Return the seconds in which each member sends `size` bytes of tokens to the devices of their experts.

    A token crosses the network once for each other node that holds its experts, and is forwarded inside it (DeepEP,
    HybridEP).

    Args:
        copies: devices that a token reaches, on average.
        nodes_reached: nodes that a token reaches, on average.
    """
    if group <= 1 or not size:
        return 0.0
    inside = min(group, max(1, machine.node // stride))
    nodes = group / inside
    local = 0.0
    if inside > 1:
        local = size * copies * (inside - 1) / inside / _bandwidth(machine, machine.all_to_all, inside, stride)
    remote = size * nodes_reached * (nodes - 1) / nodes / machine.inter
    return max(local, remote) + _latency(machine, group, stride)


def send(machine: Machine, size: float, stride: int) -> float:
    """Return the seconds to send `size` bytes to a device `stride` further in the world."""
    if stride >= machine.node:
        return size / machine.inter + machine.inter_latency
    link = machine.p2p / max(1, machine.node - 1) if machine.mesh else machine.p2p
    return size / link + machine.intra_latency
