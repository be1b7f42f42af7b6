"""Starting a run again in a cluster: as objects of a new name, whose pods go on from the checkpoint on their volume."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from launcher.executors.failure import CannotStart
from launcher.executors.kubernetes.kinds import KINDS
from launcher.executors.kubernetes.kubectl import mapping, mappings
from launcher.executors.kubernetes.pods import Pods, Toleration, Volume
from launcher.executors.kubernetes.pods_seen import Pod
from launcher.plan import LaunchPlan
from launcher.plan.executor import Place

_MOST_NAMED = 3


def pods_from(tree: Mapping[str, Any]) -> Pods:
    """Return the settings of pods from the data of a stored plan; the inverse of `dataclasses.asdict`.

    Raises:
        TypeError, KeyError, ValueError: the data is not that of pods.
    """
    pairs = ("resources", "node_selector", "labels", "annotations")
    words = ("image_pull_secrets", "capabilities")
    known = {name: tree[name] for name in Pods.__dataclass_fields__ if name in tree}
    known |= {name: tuple((str(key), str(value)) for key, value in known[name]) for name in pairs if name in known}
    known |= {name: tuple(map(str, known[name])) for name in words if name in known}
    known["volumes"] = tuple(Volume(**each) for each in known.get("volumes", ()))
    known["tolerations"] = tuple(Toleration(**each) for each in known.get("tolerations", ()))
    return Pods(**known)


def checkpoints_of_pods(plan: LaunchPlan, inside: Place, pods: Pods) -> str:
    """Return the folder in which pods look for the newest complete checkpoint.

    Args:
        inside: the run's place as its pods see it.

    Raises:
        CannotStart: it is on no volume, so that it was gone with the pods that wrote it.
    """
    folder = _checkpoints(plan, inside)
    if not _is_kept(folder, pods):
        raise CannotStart(
            f"its pods saved to {folder}, which is on none of their volumes (cluster.volumes): "
            "the checkpoints are gone with the pods"
        )
    return folder


def lost_checkpoints(plan: LaunchPlan, inside: Place, pods: Pods) -> list[str]:
    """Return the warning that pods save to a folder of their own, which ends with them; empty if it is a volume's.

    Args:
        inside: the run's place as its pods see it.
    """
    folder = _checkpoints(plan, inside)
    if plan.watch.checkpoints is None or _is_kept(folder, pods):
        return []
    volume = next((volume.path.rstrip("/") for volume in pods.volumes if not volume.read_only), "")
    works = f"checkpoint.save={volume or '/data'}/{plan.start.name}"
    works = works if volume else f"cluster.volumes=[pvc:CLAIM:/data] {works}"
    return [f"checkpoints in {folder} are lost with the pods: it is on none of their volumes; works: {works}"]


def _checkpoints(plan: LaunchPlan, inside: Place) -> str:
    return os.path.normpath(os.path.join(inside.launch_dir, plan.watch.checkpoints or ""))


def _is_kept(folder: str, pods: Pods) -> bool:
    return any(PurePosixPath(folder).is_relative_to(path) for path in _kept_paths(pods))


def _kept_paths(pods: Pods) -> Iterator[str]:
    """Yield the folders of pods that outlive them."""
    yield from (volume.path for volume in pods.volumes if not volume.read_only)
    spec = mapping(pods.patch.get("spec"))
    temporary = {each.get("name") for each in mappings(spec.get("volumes")) if "emptyDir" in each}
    for container in mappings(spec.get("containers")):
        if container.get("name") == KINDS[pods.kind].container:
            for mount in mappings(container.get("volumeMounts")):
                if mount.get("name") not in temporary:
                    yield str(mount.get("mountPath") or "/nowhere")


def check_gone(pods: Sequence[Pod]) -> None:
    """Check that no pod of an earlier attempt still runs, which may be saving to the same folder.

    Raises:
        CannotStart: with those that do.
    """
    going = [pod.name for pod in pods if pod.code is None and pod.phase == "Running"]
    if going:
        more = f" and {len(going) - _MOST_NAMED} more" if len(going) > _MOST_NAMED else ""
        raise CannotStart(
            f"pods of the run still end ({', '.join(going[:_MOST_NAMED])}{more}): resume it once they have; "
            f"where their machine is gone: kubectl delete pod {going[0]} --force"
        )
