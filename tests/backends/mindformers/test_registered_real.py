"""The callbacks that the rules take are those that MindFormers' own registry holds."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.mindformers import BACKEND
from backends.mindformers.rules.registered import registered_callbacks
from tests.rehearse.native.environments import mindformers_1_6_python, mindformers_1_8_python

pytestmark = pytest.mark.slow
_ASK = """
import json
import mindformers.trainer
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
print(json.dumps(sorted(MindFormerRegister.registry[MindFormerModuleType.CALLBACK])))
"""
# Classes of mindspore.train.callback that are registered with the callbacks, and cannot be built from a file.
HELPERS = {"CallbackManager", "CheckpointConfig", "CheckpointManager", "InternalCallbackParam", "RunContext"}


@pytest.mark.parametrize(
    ("version", "python"), [("1.6.0", mindformers_1_6_python), ("1.8.0", mindformers_1_8_python)], ids=["1.6", "1.8"]
)
def test_callbacks_of_the_real_registry(version: str, python: Callable[[], Path], tmp_path: Path) -> None:
    done = subprocess.run([str(python()), "-c", _ASK], cwd=tmp_path, capture_output=True, text=True, check=True)
    real = set(json.loads(done.stdout.splitlines()[-1]))
    assert registered_callbacks(BACKEND.catalogue(version)) == real - HELPERS
