"""Names of installed backends and executors for help texts."""

from collections.abc import Mapping


def filled(text: str) -> str:
    """Return a help text with names filled in.

    `{cuda}` and `{npu}` are backends for these devices, `{new}` and `{old}` versions, `{installed}` all backends and
    executors.

    Loads backends, so call it only for text that is shown.
    """
    return text.format_map(_names()) if "{" in text else text


def _names() -> Mapping[str, str]:
    from launcher.mapping.backend import backend_names, get_backend
    from launcher.plan.executor import executor_names

    known = [get_backend(name) for name in backend_names()]
    cuda = next((backend for backend in known if "cuda" in backend.devices), known[0])
    npu = next((backend for backend in known if "npu" in backend.devices and backend is not cuda), known[-1])
    versions = [version for version in cuda.versions if version.replace(".", "").isdigit()] or cuda.versions
    installed = f"backend={'|'.join(backend_names())}\ncluster={'|'.join(executor_names())}"
    return {"installed": installed, "cuda": cuda.name, "npu": npu.name, "new": versions[0], "old": versions[-1]}
