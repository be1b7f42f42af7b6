"""The tables of docs/convert.md, from the formats, the families' tables and what each format can lay out."""

import dataclasses
from collections.abc import Mapping
from functools import cache

from backends import BUILT_IN
from backends.mindformers.checkpoint.classes import VERSIONS, loaders
from launcher.compose import compose
from launcher.convert.builds import refuse_without_loader
from launcher.convert.containers.errors import ConvertError
from launcher.convert.formats import MODULES, format_named, format_of_backend
from launcher.convert.formats.format import Format, Layout, Target
from launcher.convert.logical import logical_model
from launcher.families.registry import weights
from launcher.job.model import Model
from launcher.job.shipped import shipped
from launcher.mapping.backend import get_backend, is_backend

MARK = "<!-- table: {} -->"
LAYOUTS: Mapping[str, Layout] = {
    "tp": Layout(tp=2),
    "pp": Layout(pp=2),
    "vpp": Layout(pp=2, vpp=2),
    "uneven": Layout(pp=2, first_stage_layers=3),
    "ep": Layout(ep=2),
    "tp·pp·ep": Layout(tp=2, pp=2, ep=2),
}


def formats() -> dict[str, tuple[Format, list[str]]]:
    """Return the formats that are written, by title, with the backends that load each."""
    found: dict[str, tuple[Format, list[str]]] = {}
    for name in MODULES:
        form = format_named(name)
        found[form.title] = (form, [])
    for name in BUILT_IN:
        own = format_of_backend(name)
        if own is not None:
            found.setdefault(own.title, (own, []))[1].append(get_backend(name).title)
    return found


def _model(family: str) -> Model:
    """Return a preset of the family with few layers: names and shapes are all that a layout needs."""
    presets = sorted(shipped("conf").joinpath("model").glob("*.yaml"))
    named = next(path.stem for path in presets if f"model_type: {family}\n" in path.read_text(encoding="utf-8"))
    return compose([f"model={named}", "model.num_hidden_layers=4"]).model


def laid_out(form: Format, model: Model, **options: str) -> list[str]:
    """Return the names of the layouts that a format can write for a model, with these options of it."""
    logical = logical_model(model)
    dtypes = dict.fromkeys(logical.tensors, "BF16")
    found = []
    for name, layout in LAYOUTS.items():
        if layout.ep > 1 and not model.is_moe:
            continue
        try:
            asked = dataclasses.replace(layout, options=options)
            form.draft(Target(logical=logical, dtypes=dtypes, layout=asked, donor=None))
        except (ConvertError, ValueError):
            continue
        found.append(name)
    return found


def _formats() -> list[str]:
    lines = ["| format | `--format` | loaded by |", "|---|---|---|"]
    for title, (form, backends) in formats().items():
        loaded = ", ".join(backends) or ("transformers" if form.kind == "hf" else "older Megatron-LM")
        named = f"`{form.name}`" if form.name in MODULES else f"`--backend {form.name}`"
        lines.append(f"| {title} | {named} | {loaded} |")
    return lines


# Formats whose files hold whole tensors unless every rank is to have its own.
_BY_RANK = {"mindformers": {"per_rank": "true"}}


def _layouts() -> list[str]:
    written = {title: form for title, (form, _) in formats().items() if form.kind != "hf"}
    lines = ["| family | " + " | ".join(written) + " |", "|---|" + "---|" * len(written)]
    for family in weights():
        model = _model(family)
        cells = [", ".join(_loadable(form, model)) or "no" for form in written.values()]
        lines.append(f"| {family} | " + " | ".join(cells) + " |")
    return lines


def _loadable(form: Format, model: Model) -> list[str]:
    """Return the layouts that a format can write for a model, none if its backend cannot build it."""
    if is_backend(form.name):
        backend = get_backend(form.name)
        if backend.cannot_build(backend.default_version, model):
            return []
        if backend.families()[str(model.model_type)].no_weights:
            return []
    try:
        refuse_without_loader(form, model, Layout())
    except ConvertError:
        return []
    return laid_out(form, model, **_BY_RANK.get(form.name, {}))


def _mindformers() -> list[str]:
    """Which class of which version loads a family, and how every choice of it is laid out."""
    form = format_of_backend("mindformers")
    assert form is not None
    columns = [(version, network) for version in VERSIONS for network in ("mcore", "older")]
    named = [f"{version}, `use_legacy: {'True' if network == 'older' else 'False'}`" for version, network in columns]
    lines = ["| family | " + " | ".join(named) + " |", "|---|" + "---|" * len(columns)]
    for family in weights():
        model, has = _model(family), loaders(family)
        cells = []
        for version, network in columns:
            title = next((has[version][known] for known in has[version] if known == network), None)
            options = {"version": version, "use_legacy": str(network == "older"), "per_rank": "true"}
            cells.append(f"{title}: {', '.join(laid_out(form, model, **options)) or 'no'}" if title else "no")
        lines.append(f"| {family} | " + " | ".join(cells) + " |")
    return lines


def filled(text: str) -> str:
    """Return the page's text with the tables that its marks name."""
    for name in _TABLES:
        text = text.replace(MARK.format(name), _table(name))
    return text


@cache
def _table(name: str) -> str:
    """Return a table; two pages have it, and all layouts of all families take most of a build's time."""
    return "\n".join(_TABLES[name]())


_TABLES = {"formats": _formats, "layouts": _layouts, "mindformers": _mindformers}
