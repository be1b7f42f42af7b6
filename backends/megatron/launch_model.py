"""Prepares a model directory for jobs without one: config.json, tokenizer, random weights."""

import json

from backends.megatron.mapping.model import BRIDGED, config_json, is_described, model_dir, source
from launcher.catalogue.versions import in_range
from launcher.job import Job, output_dir
from launcher.mapping.rows import Unsupported
from launcher.plan import NodePlan, PlanFile

_SCRIPT = "random_weights.py"
# Limit of float32 weights initialized in the memory of one machine; the script rejects more.
_LIMIT_GIB = "512"
_FETCH = (
    "import sys; from transformers import AutoTokenizer; "
    "AutoTokenizer.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])"
)
# Bash scripts; arguments: paths, then a command.
_ONCE = 'test -e "$1" || "${@:2}"'
_COPY = (
    'for file in "$1"/*; do '
    'case "${file##*/}" in config.json | generation_config.json | *.safetensors*) continue ;; esac; '
    '[ ! -f "$file" ] || [ -e "$2/${file##*/}" ] || cp -- "$file" "$2/" || exit 1; done'
)
_DRAW = (
    'test -e "$1/model.safetensors" || { rm -rf -- "$2" && "${@:3}" && rm -- "$2/config.json" && '
    'mv -- "$2"/* "$1/" && rmdir -- "$2"; }'
)
_DRAW_OTHER = 'test -e "$1/model.safetensors" || { rm -rf -- "$1" && "${@:3}" && cp -- "$2/config.json" "$1/"; }'


def model_files(job: Job, version: str) -> tuple[PlanFile, ...]:
    """Return config.json of a model without a directory, and the script that initializes its weights."""
    if not is_described(job, version):
        return ()
    from importlib.resources import files as resources

    try:
        config = json.dumps(config_json(job), indent=2) + "\n"
    except Unsupported:
        return ()  # reported by the translation
    described = PlanFile(path=f"{model_dir(job)}/config.json", content=config)
    if not _draws(version):
        return (described,)
    script = resources("launcher.rehearse").joinpath(_SCRIPT).read_text(encoding="utf-8")
    return (described, PlanFile(path=f"{output_dir(job)}/{_SCRIPT}", content=script))


def prepare_model(job: Job, version: str) -> tuple[NodePlan, ...]:
    """Return the commands that fill the model directory; existing files are kept."""
    if not is_described(job, version):
        return ()
    folder, tokenizer = model_dir(job), job.tokenizer.path or job.model.path
    fetch: tuple[NodePlan, ...] = ()
    if tokenizer is None and source(job) is not None:
        tokenizer = f"{output_dir(job)}/tokenizer"
        words = (_python(job), "-c", _FETCH, str(source(job)), tokenizer)
        fetch = (_bash(_ONCE, f"{tokenizer}/tokenizer_config.json", *words),)
    if tokenizer is None:
        return ()
    if not _draws(version):
        return (*fetch, _bash(_COPY, tokenizer, folder))
    drawn = f"{output_dir(job)}/drawn"
    return (*fetch, _bash(_DRAW, folder, drawn, *_draw(job, folder, tokenizer, drawn)))


def draw_other_weights(job: Job, out: str) -> NodePlan:
    """Return the command that fills a directory with a model of the job's configuration and other weights.

    It runs after those of prepare_model.
    """
    folder = model_dir(job)
    words = _draw(job, folder, folder, out, seed=job.seed + 1)
    return _bash(_DRAW_OTHER, out, folder, *words)


def _draw(job: Job, folder: str, tokenizer: str, drawn: str, *, seed: int | None = None) -> tuple[str, ...]:
    """Return the command that writes weights to a new directory: transformers 5 would rename keys in config.json."""
    script = f"{output_dir(job)}/{_SCRIPT}"
    places = (f"--config={folder}/config.json", f"--tokenizer={tokenizer}", f"--out={drawn}")
    return (_python(job), script, *places, "--seed", str(job.seed if seed is None else seed), "--limit-gib", _LIMIT_GIB)


def _bash(body: str, *words: str) -> NodePlan:
    """Run a bash script with `words` as arguments: inserted into the script, a quote in one would end the string."""
    return NodePlan(rank=0, argv=("bash", "-c", body, "launch", *words))


def _python(job: Job) -> str:
    return job.cluster.python or "python"


def _draws(version: str) -> bool:
    """Return whether the directory must contain weights; before 3.10 Megatron-LM initializes them."""
    return in_range(version, BRIDGED, None)
