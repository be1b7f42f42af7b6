"""The model directory that a plan prepares where there is none to name: config.json, tokenizer, random weights."""

import json

from backends.megatron.mapping.model import BRIDGED, config_json, is_described, model_dir, source
from launcher.catalogue.versions import in_range
from launcher.job import Job, output_dir
from launcher.mapping.rows import Unsupported
from launcher.plan import NodePlan, PlanFile

_SCRIPT = "random_weights.py"
# Float32 weights that the preparation draws in the memory of one machine; the script refuses more.
_LIMIT_GIB = "512"
_FETCH = (
    "import sys; from transformers import AutoTokenizer; "
    "AutoTokenizer.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])"
)
# Scripts of bash; their arguments are paths, and a command after them.
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


def model_files(job: Job, version: str) -> tuple[PlanFile, ...]:
    """Return config.json of a model without a directory of its own, and the script that draws its weights."""
    if not is_described(job, version):
        return ()
    from importlib.resources import files as resources

    try:
        config = json.dumps(config_json(job), indent=2) + "\n"
    except Unsupported:
        return ()  # an error of the translation
    described = PlanFile(path=f"{model_dir(job)}/config.json", content=config)
    if not _draws(version):
        return (described,)
    script = resources("launcher.rehearse").joinpath(_SCRIPT).read_text(encoding="utf-8")
    return (described, PlanFile(path=f"{output_dir(job)}/{_SCRIPT}", content=script))


def prepare_model(job: Job, version: str) -> tuple[NodePlan, ...]:
    """Return the commands that fill that directory; they do nothing where it is filled already."""
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


def _draw(job: Job, folder: str, tokenizer: str, drawn: str) -> tuple[str, ...]:
    """Return what draws into a fresh directory: transformers 5 would rename keys in the planned config.json."""
    script = f"{output_dir(job)}/{_SCRIPT}"
    places = (f"--config={folder}/config.json", f"--tokenizer={tokenizer}", f"--out={drawn}")
    return (_python(job), script, *places, "--seed", str(job.seed), "--limit-gib", _LIMIT_GIB)


def _bash(body: str, *words: str) -> NodePlan:
    """Run a script of bash with words as its arguments: as part of its text, a quote in one would end it."""
    return NodePlan(rank=0, argv=("bash", "-c", body, "launch", *words))


def _python(job: Job) -> str:
    return job.cluster.python or "python"


def _draws(version: str) -> bool:
    """Whether weights must lie in the directory; before 3.10 Megatron-LM draws its own."""
    return in_range(version, BRIDGED, None)
