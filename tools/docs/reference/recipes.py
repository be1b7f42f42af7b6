"""The page of recipes, from the recipes themselves: what each is, its layout, and which backend can run it."""

import dataclasses

from launcher import pipeline
from launcher.compose import compose
from launcher.job import Job
from launcher.job.shipped import shipped
from launcher.mapping.backend import backend_names, get_backend
from launcher.schema.files import is_editor_line
from tools.recipe_sources.reasons import HEADING, own

HEAD = """# Recipes

A recipe is a whole job: `launch dry-run +recipe=NAME backend=BACKEND`. Any field can be overridden on the command line.
Your own recipes lie in a folder of yours (`--config-dir DIR`) or are named by path (`+recipe=FILE.yaml`). Recipes
without `data.paths` say so in a warning: the data is yours. Sizes are real, published figures are named with their
source, and nothing here was measured by us. `python -m tools.recipes --rehearse` checks, plans and estimates each
on every backend and trains it shrunken, as far as the embedded trainer knows it. `python -m tools.recipe_sources`
compares each with the file that it was copied from, value by value; what differs is listed below with the reason,
except what the reader decides (paths, data), what affects no training and is left to the backend, and what
`tools/recipe_sources/general.json` gives one reason for.

"""
BACKENDS = """
## Which backend can run it

At each backend's newest version, as the recipe stands. `yes`: translated without an error; else the fields that are
refused (`launch check +recipe=NAME backend=BACKEND` gives the reason for each and what would work).

"""


def pages() -> dict[str, str]:
    """Return the page."""
    return {"recipes.md": _page()}


def _page() -> str:
    jobs = {path.stem: compose([f"+recipe={path.stem}"]) for path in sorted(shipped("recipes").glob("*.yaml"))}
    backends = [get_backend(name) for name in backend_names()]
    lines = ["| +recipe= | task | model= | devices | layout | micro / global batch | sequence | steps |"]
    lines += ["|---|---|---|---|---|---|---|---|", *(_row(name, job) for name, job in jobs.items())]
    lines += [BACKENDS + "| +recipe= | " + " | ".join(backend.title for backend in backends) + " |"]
    lines += ["|---|" + "---|" * len(backends)]
    for name, job in jobs.items():
        lines.append("| " + " | ".join([name, *(_accepts(job, backend.name) for backend in backends)]) + " |")
    lines += ["", "## Where they come from", ""]
    lines += [f"- **{name}**: {_comment(name)}" for name in jobs]
    return HEAD + "\n".join(lines) + "\n"


def _row(name: str, job: Job) -> str:
    parallel, schedule = job.parallel, job.schedule
    sizes = {"tp": parallel.tp, "pp": parallel.pp, "vpp": parallel.vpp, "cp": parallel.cp, "ep": parallel.ep}
    layout = " ".join(f"{axis} {size}" for axis, size in (("dp", parallel.dp), *sizes.items()) if size not in (None, 1))
    task = f"{job.task.type} (LoRA {job.lora.rank})" if job.lora.rank else job.task.type
    steps = str(schedule.train_iters) if schedule.train_iters else f"{schedule.epochs:g} epoch"
    batch = f"{job.batch.micro_batch_size} / {job.batch.global_batch_size}"
    model = job.model.hub_id or job.model.model_type
    devices = f"{job.cluster.nodes} x {job.cluster.devices_per_node}"
    cells = (name, task, model, devices, layout or "one process", batch, job.batch.seq_length, steps)
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _accepts(job: Job, backend: str) -> str:
    choice = dataclasses.replace(job.backend, name=backend)
    outcome = pipeline.judge(dataclasses.replace(job, backend=choice), fixes=False)
    refused = [field for finding in outcome.findings if finding.severity == "error" for field in finding.fields]
    return "yes" if outcome.ok else ", ".join(f"`{field}`" for field in dict.fromkeys(refused))


def _comment(name: str) -> str:
    lines = (shipped("recipes") / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    comments = (line for line in lines[1 : lines.index("defaults:")] if line.startswith("#"))
    comment = [line.removeprefix("#").strip() for line in comments if not is_editor_line(line)]
    text = " ".join(comment)
    said, _, _ = text.partition(f" {HEADING}")
    paths: dict[str, list[str]] = {}
    for path, why in own("\n".join(lines)).items():
        paths.setdefault(why, []).append(f"`{path}`")
    differs = "; ".join(f"{', '.join(named)} ({why})" for why, named in paths.items())
    return f"{said} {HEADING} {differs}." if differs else said
