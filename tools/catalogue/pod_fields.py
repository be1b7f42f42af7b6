"""Writes the table of the fields of a pod template from Kubernetes' published OpenAPI definitions.

    python -m tools.catalogue.pod_fields > launcher/executors/kubernetes/pod_fields.py

The definitions come with the package kubernetes-validate (extra `test`). Names, types and merge keys are kept.
"""

import json
import textwrap
from pathlib import Path
from typing import Any

_WIDTH = 118
_ROOT = "io.k8s.api.core.v1.PodTemplateSpec"
_QUANTITIES = ("Quantity", "IntOrString")
# A template's metadata has no others that count.
_METADATA = ("annotations", "labels")
HEAD = '''"""Fields of a pod template by type, with the keys by which a strategic merge joins lists.

Written by `python -m tools.catalogue.pod_fields`; Source: Kubernetes {version} OpenAPI definitions.
A type: NAME FIELD:TYPE …, and what is indented below; `[]` is a list, `[KEY]` a list that is merged by a key, `{{}}` a
map. Scalars: s text, i integer, n number, b boolean, q quantity or number, t time, o any object.
"""

TEXT = """\\
'''


def definitions() -> tuple[str, dict[str, Any]]:
    """Return the newest Kubernetes version of kubernetes-validate, and its definitions."""
    import kubernetes_validate

    version = kubernetes_validate.latest_version()
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{version}-local"
    return version, json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))["$defs"]


def table(known: dict[str, Any]) -> list[str]:
    """Return the lines of the table."""
    lines, waiting, done = [], [_ROOT], set()
    while waiting:
        name = waiting.pop(0)
        if name in done:
            continue
        done.add(name)
        fields = []
        for field, schema in sorted(known[name].get("properties", {}).items()):
            if name.endswith(".ObjectMeta") and field not in _METADATA:
                continue
            text, more = _type(schema, known)
            waiting += more
            fields.append(f"{field}:{text}")
        lines += textwrap.wrap(" ".join([_short(name), *fields]), _WIDTH, subsequent_indent="  ")
    return lines


def _type(schema: dict[str, Any], known: dict[str, Any]) -> tuple[str, list[str]]:
    reference = schema.get("$ref", "").rpartition("/")[2]
    if reference:
        short = _short(reference)
        if short in _QUANTITIES:
            return "q", []
        if "properties" not in known[reference]:
            return ("t" if short in ("Time", "MicroTime") else "o"), []
        return short, [reference]
    kinds = schema.get("type", "object")
    kind = next(each for each in ([kinds] if isinstance(kinds, str) else kinds) if each != "null")
    if kind == "array":
        inner, more = _type(schema["items"], known)
        return f"[{schema.get('x-kubernetes-patch-merge-key', '')}]{inner}", more
    if kind == "object":
        if "additionalProperties" not in schema:
            return "o", []
        inner, more = _type(schema["additionalProperties"], known)
        return f"{{}}{inner}", more
    return {"string": "s", "integer": "i", "number": "n", "boolean": "b"}[kind], []


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def module() -> str:
    """Return the text of the module."""
    version, known = definitions()
    return HEAD.format(version=version) + "\n".join(table(known)) + '\n"""\n'


if __name__ == "__main__":
    print(module(), end="")
