"""The table of what became of ms-swift's options, against facts extracted from its source by somebody else."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from launcher.catalogue.catalogue import Catalogue, load
from launcher.importing.read_argv import read_argv
from launcher.mapping.backend import get_backend
from launcher.mapping.renames import find_renamed

ROOT = Path(__file__).resolve().parents[3]
FACTS = Path(os.environ.get("LAUNCH_FACTS", ROOT.parent / "shared" / "facts"))
RENAMES = json.loads((ROOT / "backends" / "megatron" / "renames.json").read_text())
_VERSIONS = {"seed": "3.5-dev", "v36": "3.6.4", "v312": "3.12.6", "v46": "4.6.0"}
_FILES = {"v3.5": "3.5.3", "v3.6": "3.6.4", "v3.12": "3.12.6", "v4.0": "4.0.0", "v4.6": "4.6.0", "seed": "3.5-dev"}


def facts(name: str) -> Any:
    """Return a file of extracted facts; the test is skipped where there is none."""
    path = FACTS / name
    if not path.is_file():
        pytest.skip(f"{path} is not here: LAUNCH_FACTS names the folder")
    return json.loads(path.read_text())


def test_every_rename_is_the_one_of_the_source() -> None:
    theirs = {row["old"]: row for row in facts("megatron_swift_renames.json")["renames"]}
    ours = {row["old"]: row for row in RENAMES["names"]}
    assert len(ours) == len(theirs) == 113
    assert {old: (row["new"], row["kind"]) for old, row in ours.items()} == {
        old: (row["new"], row["kind"].replace("model-shape", "model")) for old, row in theirs.items()
    }


def test_every_changed_default_is_the_one_of_the_source() -> None:
    """The coefficient of the balancing loss is 0 in the class and None in the parser: the catalogue says both."""
    theirs = {row["name"]: row for row in facts("megatron_swift_renames.json")["default_changes"]}
    ours = {row["name"]: row["defaults"] for row in RENAMES["defaults"]}
    assert len(theirs) == 26
    wrong = {}
    for name, row in theirs.items():
        for key, version in _VERSIONS.items():
            argument = load(ROOT / "backends/megatron/catalogue" / f"{version}.json").get(name)
            absent = None if argument is None else argument.absent
            if key in row and row[key] not in (ours[name].get(version), absent):
                wrong[name, version] = (row[key], ours[name].get(version))
    assert not wrong


def test_everything_added_is_known() -> None:
    added = {row["name"] for row in RENAMES["added"]}
    assert set(facts("megatron_swift_renames.json")["added"]) <= added


@pytest.mark.parametrize("name", _FILES)
def test_the_catalogue_has_the_options_of_the_source(name: str) -> None:
    catalogue = get_backend("megatron").catalogue(_FILES[name])
    wanted = {row["name"] for row in facts(f"megatron_swift_args_{name}.json")["args"] if _trains(row, catalogue)}
    assert sorted(each for each in wanted if catalogue.get(each) is None) == []


def _trains(row: dict[str, Any], catalogue: Catalogue) -> bool:
    return any(command in catalogue.commands for command in row.get("commands", catalogue.commands))


@pytest.mark.parametrize("row", RENAMES["names"], ids=[row["old"] for row in RENAMES["names"]])
def test_an_old_name_is_reported_with_its_version_and_its_new_name(row: dict[str, Any]) -> None:
    backend = get_backend("megatron")
    known = find_renamed(row["old"], backend, "4.6.0")
    assert f"{row['until']}" in known.message
    if row["kind"] in ("rename", "inverted", "convert"):
        assert row["new"] in known.message


OLD = "megatron sft --load x --dataset d --max_epochs 2 --save_interval 7 --log_interval 3 --no_rope_fusion true"


def test_an_old_command_comes_out_under_the_new_names() -> None:
    imported = read_argv(OLD.split(), backend="megatron", version="4.6.0")
    native = {arg.flag: arg.value for arg in imported.native}
    assert (native["num_train_epochs"], native["save_steps"], native["logging_steps"]) == (2, 7, 3)
    assert native["apply_rope_fusion"] is False
    assert (imported.job.schedule.epochs, imported.job.logging.interval) == (2.0, 3)
