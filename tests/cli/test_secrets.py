"""A secret's value reaches no file, no screen and no JSON, whatever way it comes in and whatever verb is asked."""

from pathlib import Path

import pytest

from tests.conftest import Launch

pytestmark = pytest.mark.slow

VALUE = "hush-9f3b71"
JOB = (
    "+recipe=tiny_qwen3",
    "schedule.train_iters=2",
    "schedule.lr_warmup_iters=0",
    "batch.global_batch_size=2",
    "batch.seq_length=32",
)
BACKENDS = ("megatron", "megatron_lm", "mindspeed", "mindformers")
WAYS = {
    "override": ("backend.env.WANDB_API_KEY=" + VALUE,),
    "added": ("+backend.env.HF_TOKEN=" + VALUE,),
    "quoted": (f"backend.env.MY_PASSWORD='{VALUE}'",),
}
SHOWN = (
    ("dry-run",),
    ("dry-run", "--json"),
    ("dry-run", "--format", "shell"),
    ("dry-run", "--format", "yaml"),
    ("check", "--json"),
    ("dry-run", "--format", "submit", "cluster=slurm"),
    ("dry-run", "--format", "submit", "cluster=kubernetes", "cluster.container=i:1"),
)


def written(folder: Path) -> list[str]:
    """Return the files below a folder that hold the value."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if VALUE.encode() in path.read_bytes()]


@pytest.mark.sample(keep=2)
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_verb_shows_it(launch: Launch, backend: str):
    for verb, *more in SHOWN:
        job = (f"backend={backend}", *JOB)
        done = launch(verb, *job, *more, *WAYS["override"], env={"HF_TOKEN": VALUE, "WANDB_API_KEY": VALUE})
        assert VALUE not in done.out + done.err, (verb, more)


@pytest.mark.parametrize("way", WAYS)
def test_no_way_in_shows_it(launch: Launch, way: str):
    for more in ((), ("--json",)):
        done = launch("dry-run", "backend=megatron_lm", *JOB, *WAYS[way], *more)
        assert done.code == 0, done
        assert VALUE not in done.out + done.err


def test_a_native_argument_that_is_a_secret_is_a_reference(launch: Launch):
    done = launch("dry-run", "backend=megatron", *JOB, f"backend.args.hub_token={VALUE}", "--json")
    assert VALUE not in done.out + done.err
    assert "${HUB_TOKEN}" in done.out


MAPPINGS = {
    "variables": f"++backend.env={{HF_TOKEN:{VALUE},HF_HOME:/x}}",
    "arguments": f"backend.args={{hub_token:{VALUE}}}",
    "arguments in an argument": f"++backend.args.model_kwargs={{a:1,token:{VALUE}}}",
}


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("arg", MAPPINGS.values(), ids=MAPPINGS)
def test_a_mapping_shows_it_neither(launch: Launch, arg: str):
    for more in (("-m",), ("-m", "--json"), ("--json",), ()):
        done = launch("dry-run", "backend=megatron", *JOB, arg, *more)
        assert done.out, done
        assert VALUE not in done.out + done.err, more


def test_no_file_of_a_run_holds_it(launch: Launch, tmp_path: Path):
    pytest.importorskip("megatron.core")
    secret = {"WANDB_API_KEY": VALUE, "HF_TOKEN": VALUE}
    args = (*JOB, "backend=megatron_lm", "cluster.devices_per_node=1", "output_dir=out", *WAYS["override"])
    done = launch("run", *args, env=secret)
    assert done.code == 0, done
    assert VALUE not in done.out + done.err
    assert (tmp_path / "out/run/run.json").exists()
    assert written(tmp_path) == []
    assert written(Path(f"{tmp_path}.launch")) == []


def test_a_sweep_hides_it_too(launch: Launch, tmp_path: Path):
    sweep = ("run", "-m", *JOB, "backend=megatron_lm", "parallel.tp=3,5", *WAYS["override"])
    for more in ((), ("--json",)):
        done = launch(*sweep, *more)
        assert done.code, "three and five ranks do not fit"
        assert VALUE not in done.out + done.err
    assert written(tmp_path) == []
