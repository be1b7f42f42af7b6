"""The model directory that a plan prepares where there is none to name: config.json, tokenizer, random weights."""

import json
from shlex import join, quote

from backends.megatron.mapping_model import BRIDGED, config_json, is_described, model_dir, source
from launcher.job import Job, output_dir
from launcher.plan import NodePlan, PlanFile
from launcher.translate.rows import Unsupported
from launcher.translate.versions import in_range

_SCRIPT = "random_weights.py"
# Float32 weights that the preparation draws in the memory of one machine; the script refuses more.
_LIMIT_GIB = "512"
_FETCH = (
    "import sys; from transformers import AutoTokenizer; "
    "AutoTokenizer.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])"
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
        fetch = (
            _once(
                f"{tokenizer}/tokenizer_config.json", join([_python(job), "-c", _FETCH, str(source(job)), tokenizer])
            ),
        )
    if tokenizer is None:
        return ()
    if not _draws(version):
        names = " ".join(
            f"! -name {quote(name)}" for name in ("config.json", "generation_config.json", "*.safetensors*")
        )
        copy = f"find {quote(tokenizer)} -maxdepth 1 -type f {names} -exec cp -n {{}} {quote(folder)} ';'"
        return (*fetch, NodePlan(rank=0, argv=("bash", "-c", copy)))
    return (*fetch, _once(f"{folder}/model.safetensors", _draw(job, folder, tokenizer)))


def _draw(job: Job, folder: str, tokenizer: str) -> str:
    """Draw into a fresh directory and move: config.json stays as planned, transformers 5 would rename keys in it."""
    drawn = f"{output_dir(job)}/drawn"
    words = [_python(job), f"{output_dir(job)}/{_SCRIPT}", "--config", f"{folder}/config.json"]
    words += ["--tokenizer", tokenizer, "--out", drawn, "--seed", str(job.seed), "--limit-gib", _LIMIT_GIB]
    move = f"rm {quote(drawn)}/config.json && mv {quote(drawn)}/* {quote(folder)}/ && rmdir {quote(drawn)}"
    return f"rm -rf {quote(drawn)} && {join(words)} && {move}"


def _once(target: str, command: str) -> NodePlan:
    return NodePlan(rank=0, argv=("bash", "-c", f"test -e {quote(target)} || {{ {command}; }}"))


def _python(job: Job) -> str:
    return job.cluster.python or "python"


def _draws(version: str) -> bool:
    """Whether weights must lie in the directory; before 3.10 Megatron-LM draws its own."""
    return in_range(version, BRIDGED, None)
