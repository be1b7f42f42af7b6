"""Backend names for the examples in help texts: only those of installed backends."""

from collections.abc import Mapping


def filled(text: str) -> str:
    """Return an example with names for `{cuda}` and `{npu}` (backends for these), `{new}` and `{old}` (versions).

    Loads backends, so call it only for text that is shown.
    """
    return text.format_map(_names()) if "{" in text else text


def _names() -> Mapping[str, str]:
    from launcher.mapping.backend import backend_names, get_backend

    known = [get_backend(name) for name in backend_names()]
    cuda = next((backend for backend in known if "cuda" in backend.devices), known[0])
    npu = next((backend for backend in known if "npu" in backend.devices and backend is not cuda), known[-1])
    versions = [version for version in cuda.versions if version.replace(".", "").isdigit()] or cuda.versions
    return {"cuda": cuda.name, "npu": npu.name, "new": versions[0], "old": versions[-1]}
