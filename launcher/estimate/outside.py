"""Memory of a device that the framework's allocator does not get: context, communication buffers, a pool's limit."""

from launcher.estimate.machine import ASSUMED
from launcher.estimate.profile import Profile
from launcher.estimate.sizes import Sizes
from launcher.job import Job


def outside_of(job: Job, sizes: Sizes, profile: Profile) -> tuple[float, str]:
    """Return GiB outside the allocator, and the assumption made for them ("": none, all is set)."""
    memory, reserved = job.hardware.memory_gib, job.hardware.reserved_gib
    pool = job.graph.memory_gib if job.graph.memory_gib is not None else profile.pool_gib
    if profile.pool_gib is not None and pool is not None and memory is not None and reserved is None:
        note = "" if job.graph.memory_gib is not None else f"graph.memory_gib: {pool:g} ({profile.title}'s default)"
        return max(0.0, memory - pool), note
    if reserved is not None:
        return reserved, ""
    if profile.context_gib is None:
        return ASSUMED[
            "reserved_gib"
        ], f"hardware.reserved_gib: {ASSUMED['reserved_gib']:g} (context and communication buffers)"
    groups = _groups(sizes)
    total = profile.context_gib + groups * profile.group_buffer_gib
    note = (
        f"hardware.reserved_gib: {total:.2f} (context {profile.context_gib:g}, buffers of {groups} groups of devices)"
    )
    return total, note


def _groups(sizes: Sizes) -> int:
    """Return the number of groups of devices in which a rank communicates, all devices among them."""
    members = [sizes.world, sizes.tp, sizes.pp, sizes.cp, sizes.dp * sizes.cp]
    if sizes.experts:
        members += [sizes.ep, sizes.etp, sizes.edp]
    return sum(size > 1 for size in members)
