"""Every recipe is a whole, legal job that says where it comes from; the copied ones say what their source says."""

import re
from pathlib import Path

import pytest

from launcher.compose import compose
from launcher.families.config_json import config_from_model
from launcher.job import Job
from launcher.job.shipped import shipped
from tests.sampling import ROOT

FILES = sorted(shipped("recipes").glob("*.yaml"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TINY = [path for path in FILES if path.stem.startswith("tiny_")]


def _job(path: Path) -> Job:
    return compose([f"+recipe={path.stem}"])


def _stages(job: Job) -> list[int]:
    """Layers of each pipeline stage."""
    layers, pp = job.model.num_hidden_layers or 0, job.parallel.pp
    first, last = job.parallel.first_stage_layers, job.parallel.last_stage_layers
    outer = [size for size in (first, last) if size is not None]
    middle, rest = pp - len(outer), layers - sum(outer)
    assert rest % middle == 0, "the stages between the first and the last are not even"
    inner = [rest // middle] * middle
    return [*([first] if first is not None else []), *inner, *([last] if last is not None else [])]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_recipes_that_a_page_names_exist(page: Path) -> None:
    named = set(re.findall(r"\+recipe=([a-z]\w*)\b(?!\()", page.read_text(encoding="utf-8")))
    missing = named - {path.stem for path in FILES}
    assert not missing, f"{page.name} names recipes that are not in recipes/: {', '.join(sorted(missing))}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recipe_says_where_it_comes_from(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = "\n".join(lines[: lines.index("defaults:")])
    assert lines[0] == "# @package _global_"
    assert "Source: " in comment, f"{path.name}: the comment above defaults: needs `# Source: `"
    long = [f"{path.name}:{number}" for number, line in enumerate(lines, 1) if len(line) > 120]
    assert not long, f"longer than 120 characters: {', '.join(long)}"


@pytest.mark.sample(keep=10)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_arithmetic_of_a_recipe_works_out(path: Path) -> None:
    job = _job(path)
    parallel, batch, model = job.parallel, job.batch, job.model
    world = job.cluster.world_size
    assert world % (parallel.tp * parallel.pp * parallel.cp) == 0
    dp = world // (parallel.tp * parallel.pp * parallel.cp)
    assert parallel.dp == dp
    assert batch.global_batch_size is not None
    assert batch.global_batch_size % (batch.micro_batch_size * dp) == 0
    assert batch.seq_length is not None
    assert model.max_position_embeddings is not None
    assert batch.seq_length <= model.max_position_embeddings
    assert batch.seq_length % (2 * parallel.cp * parallel.tp) == 0
    assert (model.num_attention_heads or 0) % parallel.tp == 0
    groups = model.num_key_value_heads or 0
    # megatron-core 0.16 gives each rank a copy of a head that several share (transformer_config.py:939).
    assert groups % parallel.tp == 0 or parallel.tp % groups == 0
    stages = _stages(job)
    assert len(stages) == parallel.pp
    assert sum(stages) == model.num_hidden_layers
    assert all(stage % (parallel.vpp or 1) == 0 for stage in stages)
    vocabulary = job.tokenizer.padded_vocab_size or model.vocab_size
    assert (vocabulary or 0) % parallel.tp == 0


@pytest.mark.sample(keep=9)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_sequence_parallelism_and_experts_fit_the_layout(path: Path) -> None:
    job = _job(path)
    parallel, model = job.parallel, job.model
    assert not (parallel.sequence_parallel and parallel.tp == 1)
    if not model.is_moe:
        assert parallel.ep == 1
        return
    assert model.num_experts is not None
    assert model.num_experts % parallel.ep == 0
    assert (job.cluster.world_size // parallel.pp) % (parallel.ep * (parallel.etp or parallel.tp)) == 0
    assert parallel.sequence_parallel or parallel.tp == 1, "experts under tensor parallelism need sequence parallelism"


@pytest.mark.sample(keep=12)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_one_length_of_training_is_given_and_the_schedule_is_explicit(path: Path) -> None:
    job = _job(path)
    schedule = job.schedule
    assert sum(value is not None for value in (schedule.train_iters, schedule.train_samples, schedule.epochs)) == 1
    assert job.optimizer.lr is not None
    assert (schedule.lr_warmup_iters is None) != (schedule.lr_warmup_fraction is None)
    assert job.checkpoint.save
    assert job.checkpoint.save_interval


@pytest.mark.sample(keep=15)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_model_is_the_preset_itself(path: Path) -> None:
    """No recipe quietly trains another architecture than the model it names; samples that are longer than its positions
    extend them to exactly their length."""
    job = _job(path)
    overridden = set(job.model.overridden) - {"mtp_loss_scaling_factor"}
    if "max_position_embeddings" in overridden:
        assert job.model.max_position_embeddings == job.batch.seq_length
        assert "tokens" in path.read_text(encoding="utf-8").splitlines()[2]
    if "attn_logit_softcapping" in overridden:  # MindSpeed-LLM builds Gemma 2 without it
        assert "caps no logits" in path.read_text(encoding="utf-8").partition("defaults:")[0]
    if "num_nextn_predict_layers" in overridden:  # its script trains none of the layers that the model has
        assert job.model.num_nextn_predict_layers == 0
        assert job.task.type != "pretrain"
    if "initializer_range" in overridden:  # of random weights only
        assert job.model.pretrained is False
    known = {"max_position_embeddings", "attn_logit_softcapping", "num_nextn_predict_layers", "initializer_range"}
    assert overridden <= known
    config_from_model(job.model)


@pytest.mark.parametrize("path", TINY, ids=lambda path: path.stem)
def test_tiny_recipes_run_on_one_process_with_the_text_that_ships(path: Path) -> None:
    job = _job(path)
    assert (job.cluster.world_size, job.data.format, job.precision.dtype) == (1, "sample", "fp32")
    assert job.model.hub_id is None
    # The padded vocabulary is the same at tp 1, 2 and 4, so that the loss is.
    assert (job.model.vocab_size or 1) % (128 * 4) == 0


@pytest.mark.parametrize("path", TINY, ids=lambda path: path.stem)
def test_tiny_models_have_about_a_million_parameters(path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = config_from_model(_job(path).model)
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
    assert 0.9e6 < sum(weight.numel() for weight in built.parameters()) < 1.6e6
