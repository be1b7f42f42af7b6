"""A secret that a script or file gives as an argument reaches no job, no screen and no JSON, on any backend."""

import json
import re
from pathlib import Path

import pytest

from launcher.catalogue.catalogue import load
from launcher.cli import import_
from launcher.compose import compose
from launcher.importing.job_file import job_yaml
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.job.secret import by_reference, is_secret
from launcher.mapping.backend import backend_names
from launcher.pipeline import judge
from launcher.plan.shell import script

VALUE = "hf_abcdefSECRET"
# Arguments that sound like secrets: words of a vocabulary, columns of data, keys of mappings, and how many.
NOT_SECRET = re.compile(
    r"(pad|eos|eod|bos|unk|eor|placeholder|middle|prefix|suffix|reward|special|new|image|negative|positive|gmask)"
    r"[-_]tokens?(_id|_ids|_config)?$|tokeniz|key[-_](layer|head|value)|[-_]heads$|(json|map|group|additional|tag|columns)"
    r"[-_]keys?$|keys$|per[-_]token|[-_]tokens(_|-|$)|tokens?[-_](num|dispatcher|drop|rearrange|moe|length|percent|id|"
    r"monitor|distribution|permute|for|to|idx|cut|override|map|and|mask)|max[-_]tokens?|author|token_num|no[-_]cut[-_]token"
    r"|args[_-]key|bos[-_]token|generated[-_]token|rl[-_]skip|lr_key|key_layer|tiktoken|ignore_token|legacy|authorit",
    re.IGNORECASE,
)
_SOUNDS = re.compile(r"token|secret|passw|credential|api[-_]?key|auth|([-_.]|^)key$|enc_key", re.IGNORECASE)
CATALOGUES = sorted(
    path
    for name in backend_names()
    for path in (Path(__file__).parents[2] / "backends" / name / "catalogue").glob("*.json")
)


def _sounding() -> list[str]:
    names = {argument.name for path in CATALOGUES for argument in load(path).arguments}
    return sorted(name for name in names if _SOUNDS.search(name))


def test_every_argument_that_sounds_like_a_secret_is_one_or_is_named_as_none() -> None:
    """A new version's catalogue brings new names: someone must say which of them are secrets."""
    undecided = [name for name in _sounding() if not is_secret(name) and not NOT_SECRET.search(name)]
    assert undecided == []
    assert [name for name in _sounding() if is_secret(name) and NOT_SECRET.search(name)] == []


SECRETS = [name for name in _sounding() if is_secret(name)]


@pytest.mark.parametrize("name", SECRETS)
def test_secret_arguments_of_the_catalogues_are_references(name: str) -> None:
    wanted = "${" + name.rpartition(".")[2].replace("-", "_").upper() + "}"
    assert by_reference(name, VALUE) == wanted
    assert by_reference(name, "$HF_TOKEN") == "${HF_TOKEN}", "a variable stays the variable that it is"
    assert by_reference("train_dataset.data_loader", [{name.rpartition(".")[2]: VALUE, "n": 2}]) == [
        {name.rpartition(".")[2]: wanted, "n": 2}
    ]


@pytest.mark.parametrize("name", ["HF_TOKEN", "WANDB_API_KEY", "KEY", "aws_secret", "SWANLAB_API_KEY", "DB_PASSWORD"])
def test_secret_variables(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["TOKENIZER", "KEYS", "GENERATIVE_RERANKER_POSITIVE_TOKEN", "MONKEY"])
def test_variables_that_are_none(name: str) -> None:
    assert not is_secret(name)


_SWIFT = "megatron sft --model Qwen/Qwen3-8B --dataset d --lr 1e-5 --train_iters 9 --global_batch_size 8"
_MINDSPEED = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 "
    "--seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --train-iters 9 --lr 1e-4 --use-flash-attn "
    "--mock-data --tokenizer-type NullTokenizer --vocab-size 99 --no-shared-storage"
)
_YAML = """use_legacy: False
run_mode: train
trainer: {type: CausalLanguageModelingTrainer, model_name: qwen3}
hub_token: VALUE
model: {model_config: {model_type: qwen3, token: VALUE, hidden_size: 64, num_hidden_layers: 2}}
optimizer: {type: AdamW}
callbacks: [{type: CheckpointMonitor, enc_key: VALUE, directory: ./x, save_checkpoint_steps: 10}]
train_dataset: {data_loader: {type: HFDataLoader, handler: [{type: take, token: VALUE}]}}
"""
INPUTS = {
    "an argument": ("x.sh", f"{_SWIFT} --hub_token VALUE"),
    "an argument with an equals sign": ("x.sh", f"{_SWIFT} --hub_token=VALUE"),
    "a variable of the script": ("x.sh", f"KEY=VALUE\n{_SWIFT} --hub_token $KEY"),
    "a prefix of the command": ("x.sh", f"HF_TOKEN=VALUE SWANLAB_API_KEY=VALUE {_SWIFT}"),
    "an export": ("x.sh", f"export WANDB_API_KEY=VALUE KEY=VALUE\n{_SWIFT}"),
    "a word of env": ("x.sh", f"env HF_TOKEN=VALUE {_SWIFT}"),
    "an argument that the backend does not have": ("x.sh", f"{_SWIFT} --swanlab_token VALUE --wandb_api_key VALUE"),
    "Megatron's dialect": ("x.sh", f"{_MINDSPEED} --wandb-api-key VALUE --hub-token VALUE"),
    "another program": ("x.sh", f"wandb login VALUE\nhuggingface-cli login --token VALUE\n{_SWIFT}"),
    "a file": ("x.yaml", _YAML),
}


@pytest.mark.sample(keep=13)
@pytest.mark.parametrize("more", [(), ("--json",), ("--to", "mindspeed"), ("--to", "mindformers", "--json")], ids=str)
@pytest.mark.parametrize("case", INPUTS)
def test_a_secret_is_shown_nowhere(
    case: str,
    more: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, text = INPUTS[case]
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text.replace("VALUE", VALUE))
    import_.main([name, "--partial", "-o", "job.yaml", *more])
    captured = capsys.readouterr()
    job = Path("job.yaml").read_text() if Path("job.yaml").exists() else ""
    assert VALUE not in captured.out + captured.err + job


def test_a_script_says_that_a_secret_must_be_set(tmp_path: Path) -> None:
    """MindFormers reads it from its YAML: the variable is asked for before that is written."""
    file = tmp_path / "x.yaml"
    file.write_text(
        "use_legacy: False\nrun_mode: train\nhub_token: '${my_token}'\nparallel_config: {model_parallel: 2}\n"
    )
    imported = read_file(file, ImportOptions())[0]
    assert imported.job.backend.args["hub_token"] == "${MY_TOKEN}"
    job = tmp_path / "job.yaml"
    job.write_text(job_yaml(imported, "x.yaml", with_version=False))
    text = script(judge(compose([f"+job={job}", "data.paths=[x]"]), fixes=False).plan())
    assert ': "${MY_TOKEN:?set MY_TOKEN before running this script}"' in text
    assert 'hub_token: "${MY_TOKEN}"' in text


def test_the_reference_and_the_remark_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.sh").write_text(f"{_SWIFT} --hub_token {VALUE}\n")
    assert import_.main(["x.sh", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["job"]["backend"]["args"] == {"hub_token": "${HUB_TOKEN}"}
    assert "hub_token is a secret" in captured.out + captured.err
