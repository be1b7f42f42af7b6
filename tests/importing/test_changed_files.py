"""Configurations that a script writes, copies and edits: what the training reads there is what a real bash gives it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from launcher.importing.notes import ImportRefused
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from tests.waiting import STUCK_SECONDS

BASE = """model: Qwen/Qwen3-8B
dataset:
  - a.jsonl
tuner_type: lora
lora_rank: 16
lr: 2e-5
micro_batch_size: 2
global_batch_size: 16
tensor_model_parallel_size: 2
num_train_epochs: 3
packing: true
"""
_TRAIN = "NPROC_PER_NODE=8 megatron sft"
# A program `megatron` that keeps its configuration as it is at that moment, only the first time.
_STUB = '#!/bin/bash\n[ -f "$SEEN" ] || cp "$2" "$SEEN"\n'

# name: script; base.yaml is beside it
FOLLOWED = {
    "sed on a file on disk": f"sed -i 's/^lora_rank:.*/lora_rank: 64/' base.yaml\n{_TRAIN} base.yaml",
    "sed on a file that it writes": f"cat > c.yaml <<Y\n{BASE}Y\nsed -i 's/size: 2/size: 4/' ./c.yaml\n{_TRAIN} c.yaml",
    "several edits": f"sed -i.bak -e 's/lr: .*/lr: 1e-4/' -e '/^packing/d' base.yaml\n{_TRAIN} base.yaml",
    "lines put in": f"sed -i '/^lr:/a seed: 5' base.yaml\nsed -i '1i max_length: 64' base.yaml\n{_TRAIN} base.yaml",
    "a copy": f'cp base.yaml run.yaml\nsed -i "s/: 16/: 8/" run.yaml\n{_TRAIN} run.yaml',
    "a copy into a folder": f"mkdir -p conf\ncp base.yaml conf/\n{_TRAIN} conf/base.yaml",
    "a copy that is moved": f"cp base.yaml a.yaml; mv a.yaml b.yaml; echo 'seed: 7' >> b.yaml\n{_TRAIN} b.yaml",
    "appended to": f"echo 'seed: 5' >> base.yaml\n{_TRAIN} base.yaml",
    "sed into another file": f'R=64\nsed "s/lora_rank: .*/lora_rank: $R/" base.yaml > run.yaml\n{_TRAIN} run.yaml',
    "a file and text": f"cat base.yaml - > run.yaml <<Y\nseed: 5\nY\n{_TRAIN} run.yaml",
    "a pipeline": f"cat base.yaml | sed 's/2e-5/3e-5/' > run.yaml\n{_TRAIN} run.yaml",
    "tee": f"sed 's/2e-5/3e-5/' base.yaml | tee run.yaml > /dev/null\n{_TRAIN} run.yaml",
    "a group": f"{{ cat base.yaml; echo 'seed: 5'; }} > run.yaml\n{_TRAIN} run.yaml",
    "a function": f'gen() {{ cat base.yaml; echo "seed: $1"; }}\ngen 5 > run.yaml\n{_TRAIN} run.yaml',
    "only if it is not there": f"[ -f run.yaml ] || cp base.yaml run.yaml\n{_TRAIN} run.yaml",
    "edited after the training": f"cp base.yaml c.yaml\n{_TRAIN} c.yaml\nsed -i 's/16/8/' c.yaml",
    "removed after the training": f"cp base.yaml c.yaml\n{_TRAIN} c.yaml\nrm c.yaml",
    "in another folder": f"mkdir out; cp base.yaml out/r.yaml; cd out\nsed -i 's/16/4/' r.yaml\n{_TRAIN} r.yaml",
    "a value of a variable": f'sed -i "s|^lr:.*|lr: ${{LR:-3e-5}}|; /^packing/d" ./base.yaml\n{_TRAIN} base.yaml',
    "removed and written again": f"cp base.yaml c.yaml; rm -f c.yaml; cat base.yaml >> c.yaml\n{_TRAIN} c.yaml",
}
# name: (script, line, command that is named)
REFUSED = {
    "yq": (f"yq -i '.lora_rank = 64' base.yaml\n{_TRAIN} base.yaml", 1, "yq -i '.lora_rank = 64' base.yaml"),
    "perl": (f"perl -pi -e 's/16/64/' base.yaml\n{_TRAIN} base.yaml", 1, "perl -pi -e 's/16/64/' base.yaml"),
    "python": (
        f"python3 - <<P\nimport yaml\nc = yaml.safe_load(open('base.yaml'))\nyaml.dump(c, open('base.yaml', 'w'))\nP\n"
        f"{_TRAIN} base.yaml",
        1,
        "python3 - <<P",
    ),
    "envsubst": (f"\nenvsubst < t.yaml > run.yaml\n{_TRAIN} run.yaml", 2, "envsubst < t.yaml > run.yaml"),
    "a sed that is not simple": (f"sed -i 'y/1/2/' base.yaml\n{_TRAIN} base.yaml", 1, "sed -i 'y/1/2/' base.yaml"),
    "appended to what is not known": (
        f"jq . a.json > run.yaml\necho 'seed: 5' >> run.yaml\n{_TRAIN} run.yaml",
        2,
        "echo 'seed: 5' >> run.yaml",
    ),
}


def _import(tmp_path: Path, script: str) -> dict[str, object]:
    (tmp_path / "x.sh").write_text(script)
    (imported, *_) = read_file(tmp_path / "x.sh", ImportOptions(folder=str(tmp_path)))
    assert not imported.warnings or "absent" in str(imported.warnings[0])
    return {arg.flag: arg.value for arg in imported.native}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("name", FOLLOWED)
def test_the_training_reads_what_bash_leaves_there(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text(BASE)
    found = _import(tmp_path, FOLLOWED[name])
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/megatron").write_text(_STUB)
    (tmp_path / "bin/megatron").chmod(0o755)
    env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "SEEN": f"{tmp_path}/seen.yaml"}
    subprocess.run(["bash", "x.sh"], env=env, timeout=STUCK_SECONDS, check=True)
    assert found == _import(tmp_path, f"{_TRAIN} seen.yaml")


@pytest.mark.parametrize("name", REFUSED)
def test_a_change_that_is_not_followed_is_named(name: str, tmp_path: Path) -> None:
    script, line, command = REFUSED[name]
    (tmp_path / "base.yaml").write_text(BASE)
    with pytest.raises(ImportRefused) as refused:
        _import(tmp_path, script)
    (note,) = refused.value.notes
    assert f"is written or edited by `{command}`, the effect of which is not known" in note.message
    assert note.where == f"{tmp_path / 'x.sh'}:{line}"


def test_a_removed_configuration_is_named(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE)
    with pytest.raises(ImportRefused, match=r"base\.yaml is removed by `rm base\.yaml`"):
        _import(tmp_path, f"rm base.yaml\n{_TRAIN} base.yaml")


def test_lines_with_a_value_of_the_user_are_left_as_they_are(tmp_path: Path) -> None:
    base = BASE.replace("packing: true", "output_dir: ${OUT}/x")
    script = f"cat > c.yaml <<Y\n{base}Y\nsed -i 's/parallel_size: 2/parallel_size: 4/' c.yaml\n{_TRAIN} c.yaml"
    (tmp_path / "x.sh").write_text(script)
    (imported,) = read_file(tmp_path / "x.sh", ImportOptions(folder=str(tmp_path)))
    found = {arg.flag: arg.value for arg in imported.native}
    assert (found["tensor_model_parallel_size"], found["output_dir"]) == (4, "${OUT}/x")


def test_a_configuration_that_a_program_makes_is_refused_with_the_program(tmp_path: Path) -> None:
    script = f"\npython make.py --out run.yaml\n{_TRAIN} run.yaml"
    message = r"x\.sh:2: the configuration run\.yaml does not exist: python may make it, which is not run"
    with pytest.raises(ImportRefused, match=message):
        _import(tmp_path, script)


def test_a_program_that_gets_the_configuration_before_is_named(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "x.sh").write_text(f"python set_rank.py --file base.yaml\n{_TRAIN} base.yaml")
    (imported,) = read_file(tmp_path / "x.sh", ImportOptions(folder=str(tmp_path)))
    (note,) = imported.warnings
    assert note.message == "base.yaml is also given to python, before: what that may change in it is not read"


def test_trainings_with_the_file_edited_between_them_are_two(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "x.sh").write_text(f"{_TRAIN} base.yaml\nsed -i 's/: 16/: 8/' base.yaml\n{_TRAIN} base.yaml")
    found = read_file(tmp_path / "x.sh", ImportOptions(folder=str(tmp_path)), all_commands=True)
    assert [job.job.batch.global_batch_size for job in found] == [16, 8]
