"""One owner of a run's objects: the job; the cluster deletes the others with it."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from launcher.executors.kubernetes.kubectl import Refused, kubectl

_OWNED = {"ConfigMap": "configmap", "Service": "service"}


def adopt(handle: Mapping[str, Any], owner: Mapping[str, Any], made: Sequence[Mapping[str, Any]]) -> None:
    """Make the job the owner of the objects that were created with it.

    Its uid is known only after it was created. Where the user may create objects and not change them they stay
    without an owner, and `launch clean` deletes them by their label.
    """
    names = [f"{_OWNED[tree['kind']]}/{tree['metadata']['name']}" for tree in made if tree.get("kind") in _OWNED]
    metadata = owner["metadata"]
    if not names or not metadata.get("uid"):
        return
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    reference |= {"name": metadata["name"], "uid": metadata["uid"]}
    patch = {"metadata": {"ownerReferences": [reference]}}
    with contextlib.suppress(Refused):
        kubectl(handle, "patch", *names, "--type=merge", "-p", json.dumps(patch), "-o", "name")
