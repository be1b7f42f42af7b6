"""Contradictions between the levels of a machine's links and the devices of a job, each with values that work."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from launcher.job.hardware import Hardware, host_devices, linked_devices
from launcher.rules.registry import Violation

_DOMAIN = ("domain_gbs", "domain_latency_us", "domain_efficiency", "domain_oversubscription")
_SPINE = ("spine_gbs", "spine_latency_us", "spine_efficiency", "spine_oversubscription")
_Changes = Mapping[str, int | float | None]


def contradictions(hardware: Hardware, node: int, world: int) -> list[Violation]:
    """Return what is contradictory in the levels of a machine.

    Args:
        node: devices of a node.
        world: devices of the job.
    """
    found = []
    for message, names in _problems(hardware, node, world):
        fields = tuple(name if "." in name else f"hardware.{name}" for name in names)
        found.append(Violation(message=message, fields=fields, works=_works(hardware, node, world, names)))
    return found


def _works(hardware: Hardware, node: int, world: int, names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the first change of the fields of a problem after which none is left, tried; empty where there is none."""
    for changes in _candidates(hardware, node, world, names):
        if not list(_problems(replace(hardware, **changes), node, world)):  # type: ignore[arg-type]
            pairs = changes.items()
            return (tuple(f"hardware.{name}={'null' if value is None else f'{value:g}'}" for name, value in pairs),)
    return ()


def _candidates(hardware: Hardware, node: int, world: int, names: tuple[str, ...]) -> Iterator[_Changes]:
    domain = hardware.domain_devices
    if domain is not None and names[0].startswith("domain_") and names[0] not in _DOMAIN:
        for used in range(min(domain, world) // node * node, 0, -node):
            yield {"domain_used_devices": used}
        for devices in (domain // node * node, (domain // node + 1) * node):
            if devices:
                yield {"domain_devices": devices, "domain_used_devices": None}
        yield {"domain_devices": None}
    elif names[0] == "node_devices":
        most = host_devices(hardware, node)
        yield {"node_devices": max(part for part in range(1, most + 1) if node % part == 0)}
    elif names[0] == "rail_devices":
        given = hardware.rail_devices or world
        for devices in sorted(range(node, world + 1, node), key=lambda devices: abs(devices - given)):
            yield {"rail_devices": devices}
    elif names[0] == "domain_gbs" and hardware.intra_node_gbs is not None and "intra_node_gbs" in names:
        yield {"domain_gbs": hardware.intra_node_gbs / 2}
    elif names[0] == "spine_gbs" and hardware.inter_node_gbs is not None and "inter_node_gbs" in names:
        yield {"spine_gbs": hardware.inter_node_gbs}
    yield {name: None for name in names if name in (*_DOMAIN, *_SPINE)}


def _problems(hardware: Hardware, node: int, world: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield from _incomplete(hardware)
    yield from _faster(hardware)
    host = host_devices(hardware, node)
    if host < 1:
        return  # a node without devices, of which the job's own fields have the error
    if node % host:
        message = (
            f"hardware.node_devices {host} does not divide the {node} devices of a node (cluster.devices_per_node)"
        )
        yield message, ("node_devices", "cluster.devices_per_node")
    if world > node:  # a job on one node crosses no level
        yield from _sizes(hardware, node, world)


def _incomplete(hardware: Hardware) -> Iterator[tuple[str, tuple[str, ...]]]:
    for names, needed in ((_DOMAIN, "domain_devices"), (_SPINE, "rail_devices")):
        # An oversubscription of 1 is none, with or without the level.
        none = {name: 1 if name.endswith("_oversubscription") else None for name in names}
        given = tuple(name for name in names if getattr(hardware, name) not in (None, none[name]))
        if given and getattr(hardware, needed) is None:
            listed = ", ".join(f"hardware.{name}" for name in given)
            yield f"{listed} has no effect without hardware.{needed}", (*given, needed)


def _faster(hardware: Hardware) -> Iterator[tuple[str, tuple[str, ...]]]:
    """An outer level carries no more than the links through which a device reaches it."""
    link, gbs = hardware.intra_node_gbs, hardware.domain_gbs
    if link is not None and gbs is not None and gbs > link / 2:
        message = (
            f"hardware.domain_gbs {gbs:g} (one direction) is above the {link / 2:g} of the links within a node "
            f"(hardware.intra_node_gbs {link:g}, both directions)"
        )
        yield message, ("domain_gbs", "intra_node_gbs")
    adapter, spine = hardware.inter_node_gbs, hardware.spine_gbs
    if adapter is not None and spine is not None and spine > adapter:
        message = (
            f"hardware.spine_gbs {spine:g} is above the {adapter:g} of the adapter that it is reached through "
            "(hardware.inter_node_gbs)"
        )
        yield message, ("spine_gbs", "inter_node_gbs")


def _sizes(hardware: Hardware, node: int, world: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The devices of a level are whole units of the level inside it, and divide a job that is larger."""
    domain, used = hardware.domain_devices, hardware.domain_used_devices
    linked = linked_devices(hardware, node, world)
    across = linked > host_devices(hardware, node)
    if domain is not None and domain % node:
        message = f"hardware.domain_devices {domain} is not a whole number of nodes of {node} devices"
        yield message, ("domain_devices", "cluster.devices_per_node")
    elif domain is not None and used is not None and used > domain:
        message = f"hardware.domain_used_devices {used} is more than the {domain} devices of a domain"
        yield message, ("domain_used_devices", "domain_devices")
    elif domain is not None and used is not None and used % node:
        message = f"hardware.domain_used_devices {used} is not a whole number of nodes of {node} devices"
        yield message, ("domain_used_devices", "cluster.devices_per_node")
    elif across and linked < world and world % linked:
        message = f"domains of {linked} devices do not divide the job's {world}: it must take as many of each domain"
        yield message, ("domain_devices", "domain_used_devices", "cluster.nodes")
    else:
        unit = linked if across else node
        rail = hardware.rail_devices
        if rail is None or rail >= world or unit >= world:
            return
        if rail % unit:
            what = "domains" if across else "nodes"
            message = f"hardware.rail_devices {rail} is not a whole number of {what} of {unit} devices"
            yield message, ("rail_devices", "domain_devices", "cluster.devices_per_node")
        elif world % rail:
            message = f"hardware.rail_devices {rail} does not divide the job's {world} devices"
            yield message, ("rail_devices", "cluster.nodes")
