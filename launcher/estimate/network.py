"""Communication costs: ring and all-to-all models on the levels of links that a group of devices crosses."""

from launcher.estimate.machine import Machine
from launcher.estimate.topology import Level


def _members(level: Level, group: int, stride: int) -> int:
    """Return how many of a group's members a level joins; the group is every `stride`-th device of the world."""
    return min(group, max(1, level.devices // stride))


def _crossed(machine: Machine, span: int) -> Level:
    """Return the innermost level that joins this many consecutive devices."""
    level = machine.levels[0]
    for level in machine.levels:
        if span <= level.devices:
            break
    return level


def _bandwidth(machine: Machine, collective: str, group: int, stride: int) -> float:
    """Return bytes/s of a ring over `group` devices, every `stride`-th of the world.

    Beyond a host, the members of a group that share a unit of the level inside also share the links that leave it with
    the other groups of that unit, one a device; the slowest level on the way limits the ring. On PCIe, groups that
    cross the host bridge share it, and longer rings lose part of it to their own traffic (measured on A100 PCIe: 17.2,
    15.8, 13.3 GB/s in total for rings of 2, 4, 8). In a mesh without switches a group has only the links between its
    own members.
    """
    host, span = machine.levels[0], group * stride
    speed: float = getattr(host, collective)
    if span <= host.devices:
        if machine.mesh:
            return speed * (group - 1) / max(1, host.devices - 1)
        if machine.shared is not None and span > host.devices // 2:
            left = 1 - 0.07 * (group // 2 - 1)
            return min(speed, machine.shared * left / max(1, min(stride, host.devices // group)))
        return speed
    inside = host.devices
    for level in machine.levels[1:]:
        speed = min(speed, getattr(level, collective) * max(1, inside // stride))
        if span <= level.devices:
            break
        inside = level.devices
    return speed


def _latency(machine: Machine, group: int, stride: int, most: int | None = None) -> float:
    """Return the seconds that a collective takes beyond moving its bytes: a step for each member but one, or `most`."""
    steps = (group if most is None else min(group, most)) - 1
    return machine.start + _crossed(machine, group * stride).latency * steps


# Devices on which the latency of exchanges within a node was measured (B200 and A100 PCIe).
_MEASURED = 8


def _exchange_latency(machine: Machine, group: int, stride: int) -> float:
    """Return the seconds that an exchange takes beyond moving its bytes.

    Within a domain as on the eight devices on which it was measured: its switches let all members send at once.
    """
    return _latency(machine, group, stride, _MEASURED if group * stride <= machine.linked else None)


def _ring(machine: Machine, collective: str, size: float, group: int, stride: int, times: int = 1) -> float:
    """Return the seconds of `times` passes of `size` bytes around a group.

    On one or two levels it is one ring. On more it goes level by level, inside first: the outermost part runs between
    the members of equal place in each unit, each with the share that the inner part leaves it.
    """
    inside = [_members(level, group, stride) for level in machine.levels] if len(machine.levels) > 2 else []
    crossed = sorted({members for members in inside if members > 1})
    if len(crossed) > 2:
        inner = crossed[-2]
        outer = -(-group // inner)
        first = _ring(machine, collective, size, inner, stride, times)
        return first + _ring(machine, collective, size / inner, outer, stride * inner, times)
    speed = _bandwidth(machine, collective, group, stride)
    return times * size * (group - 1) / group / speed + times * _latency(machine, group, stride)


def all_gather(machine: Machine, size: float, group: int, stride: int) -> float:
    """Return the seconds to gather `size` bytes in total over a group."""
    return _ring(machine, "all_gather", size, group, stride) if group > 1 and size else 0.0


def reduce_scatter(machine: Machine, size: float, group: int, stride: int) -> float:
    """Return the seconds to reduce `size` bytes and leave each member its share."""
    return _ring(machine, "reduce_scatter", size, group, stride) if group > 1 and size else 0.0


def all_reduce(machine: Machine, size: float, group: int, stride: int) -> float:
    """Return the seconds to sum `size` bytes over a group, each member keeping all of it."""
    return _ring(machine, "all_reduce", size, group, stride, 2) if group > 1 and size else 0.0


def _exchange(machine: Machine, size: float, group: int, stride: int) -> float:
    """Return the seconds, without latency, in which each member sends `size` bytes in equal parts to all members.

    All levels work at once; what leaves through a network adapter passes it for the rail and the spine.
    """
    reached = _members(machine.levels[0], group, stride)
    slowest = 0.0
    if reached > 1:
        slowest = size * (reached - 1) / group / _bandwidth(machine, "all_to_all", reached, stride)
    for level in machine.levels[1:]:
        if reached == group:
            break
        members = _members(level, group, stride)
        sent = group - reached if level.network else members - reached
        slowest = max(slowest, size * sent / group / level.all_to_all)
        reached = members
    return slowest


def all_to_all(machine: Machine, size: float, group: int, stride: int) -> float:
    """Return the seconds in which each member sends `size` bytes, in equal parts to all members."""
    if group <= 1 or not size:
        return 0.0
    return _exchange(machine, size, group, stride) + _exchange_latency(machine, group, stride)


def dispatch(machine: Machine, size: float, copies: float, domains_reached: float, group: int, stride: int) -> float:
    """Return the seconds in which each member sends `size` bytes of tokens to the devices of their experts.

    A token crosses the network once for each other domain (a host without one) that holds its experts, and is
    forwarded inside it (DeepEP, HybridEP).

    Args:
        copies: devices that a token reaches, on average.
        domains_reached: domains that a token reaches, on average.
    """
    if group <= 1 or not size:
        return 0.0
    inside = min(group, max(1, machine.linked // stride))
    domains = group / inside
    slowest = _exchange(machine, size * copies, inside, stride) if inside > 1 else 0.0
    reached = inside
    for level in machine.levels:
        if level.network and reached < group:
            slowest = max(slowest, size * domains_reached * (domains - reached / inside) / domains / level.all_to_all)
            reached = _members(level, group, stride)
    return slowest + _exchange_latency(machine, group, stride)


def send(machine: Machine, size: float, stride: int) -> float:
    """Return the seconds to send `size` bytes to a device `stride` further in the world."""
    level = _crossed(machine, stride + 1)
    link = level.p2p
    if machine.mesh and level is machine.levels[0]:
        link /= max(1, level.devices - 1)
    return size / link + level.latency
