"""Levels of a machine's links, inside first: host, NVLink or HCCS domain, rail, spine."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from launcher.job.hardware import Hardware, host_devices, linked_devices
from launcher.records import dataclass

# Collectives whose links have an efficiency of their own within a node.
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p")
# Devices of the outermost level.
ALL = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level: what joins `devices` consecutive devices, beyond the level inside it.

    Attributes:
        devices: devices that it joins; those of inner levels included.
        all_reduce, all_gather, reduce_scatter, all_to_all, p2p: bytes/s of one device in one direction.
        latency: seconds of a collective's step.
        network: reached through the network adapter of each device, which all network levels share.
    """

    devices: int
    all_reduce: float
    all_gather: float
    reduce_scatter: float
    all_to_all: float
    p2p: float
    latency: float
    network: bool = False


def levels_of(
    hardware: Hardware, devices_per_node: int, world: int, figure: Callable[[str], float]
) -> tuple[Level, ...]:
    """Return the levels of a machine as a job uses it; a level whose links equal those inside it is merged with them.

    Args:
        figure: value of a field of `hardware`, or what is assumed for it.
    """
    link = figure("intra_node_gbs") * 1e9 / 2
    share = {name: figure(f"{name}_efficiency") for name in COLLECTIVES}
    speeds = {name: link * share[name] for name in COLLECTIVES}
    host = _level(host_devices(hardware, devices_per_node), speeds, figure("intra_node_latency_us"))
    rail = _network(
        figure("inter_node_gbs"),
        figure("inter_node_efficiency"),
        hardware.rail_oversubscription,
        figure("inter_node_latency_us"),
    )
    levels = [host]
    linked = linked_devices(hardware, devices_per_node, world)
    if linked > host.devices:
        levels.append(_domain(hardware, host, linked, share))
    if hardware.rail_devices is None or world <= hardware.rail_devices:
        return _merged(hardware, [*levels, rail])
    spine = _network(
        hardware.spine_gbs if hardware.spine_gbs is not None else figure("inter_node_gbs"),
        hardware.spine_efficiency if hardware.spine_efficiency is not None else figure("inter_node_efficiency"),
        hardware.spine_oversubscription,
        hardware.spine_latency_us if hardware.spine_latency_us is not None else figure("inter_node_latency_us"),
    )
    return _merged(hardware, [*levels, replace(rail, devices=hardware.rail_devices), spine])


def _domain(hardware: Hardware, host: Level, devices: int, share: dict[str, float]) -> Level:
    gbs, efficiency = hardware.domain_gbs, hardware.domain_efficiency
    link = (gbs * 1e9 if gbs is not None else host.p2p / share["p2p"]) / (hardware.domain_oversubscription or 1.0)
    if gbs is None and efficiency is None and hardware.domain_oversubscription is None:
        domain = replace(host, devices=devices)
    else:
        speeds = {name: link * (efficiency if efficiency is not None else share[name]) for name in COLLECTIVES}
        domain = replace(_level(devices, speeds, 0.0), latency=host.latency)
    if hardware.domain_latency_us is not None:
        domain = replace(domain, latency=hardware.domain_latency_us * 1e-6)
    return domain


def _level(devices: int, speeds: Mapping[str, float], latency_us: float, *, network: bool = False) -> Level:
    return Level(
        devices=devices,
        all_reduce=speeds["all_reduce"],
        all_gather=speeds["all_gather"],
        reduce_scatter=speeds["reduce_scatter"],
        all_to_all=speeds["all_to_all"],
        p2p=speeds["p2p"],
        latency=latency_us * 1e-6,
        network=network,
    )


def _network(gbs: float, efficiency: float, oversubscription: float | None, latency_us: float) -> Level:
    speed = gbs * 1e9 * efficiency
    if oversubscription is not None:
        speed /= oversubscription
    return _level(ALL, dict.fromkeys(COLLECTIVES, speed), latency_us, network=True)


def _merged(hardware: Hardware, levels: list[Level]) -> tuple[Level, ...]:
    """Return the levels without those that only repeat the next one's links.

    The links of a host that is a mesh, or whose groups share a bridge, are none that a domain could repeat.
    """
    kept = []
    special = hardware.full_mesh or hardware.shared_link_gbs is not None
    for index, level in enumerate(levels[:-1]):
        same = replace(level, devices=levels[index + 1].devices) == levels[index + 1]
        if not same or (special and index == 0):
            kept.append(level)
    return (*kept, levels[-1])
