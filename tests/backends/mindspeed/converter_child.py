"""Runs MindSpeed-LLM's own weight converters on CPU, once for every line of words that comes in.

They need torch only; what they import besides (Ascend, the training arguments, quantisation) is kept away.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import traceback
import types
from pathlib import Path

CONVERTER = "convert_ckpt_v2.py"
OLD_CONVERTER = "examples/mcore/deepseek3/convert_ckpt_deepseek3.py"
# The older converter knows one model, by heart; these are the sizes of the tests' tiny one.
SIZES = {
    "HIDDEN_SIZE": 64,
    "NUM_EXPERTS": 4,
    "FIRST_K_DENSE_REPLACE": 1,
    "MTP_LAYER_INDEX": 4,
    "NUM_ATTENTION_HEADS": 4,
    "QK_NOPE_HEAD_DIM": 16,
    "QK_ROPE_HEAD_DIM": 8,
    "V_HEAD_DIM": 16,
}


def _module(name: str, **values: object) -> None:
    made = types.ModuleType(name)
    made.__dict__.update(values)
    sys.modules[name] = made


def _source(checkout: Path) -> str:
    """The converter's text, after what it imports from elsewhere was put in place."""
    if (checkout / CONVERTER).is_file():
        _module("mindspeed_llm.training")
        _module("mindspeed_llm.training.utils", auto_coverage=lambda function: function)
        return (checkout / CONVERTER).read_text(encoding="utf-8")
    for name in ("mindspeed_llm", "mindspeed_llm.tasks", "mindspeed_llm.tasks.evaluation", "bitsandbytes"):
        _module(name)
    _module("mindspeed_llm.tasks.evaluation.file_utils", standardize_path=lambda path, **_: path)
    text = (checkout / OLD_CONVERTER).read_text(encoding="utf-8")
    for name, value in SIZES.items():
        text = re.sub(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
    return text


def main() -> None:
    """Read JSON lists of arguments from standard input, answer each with one line: ok, or the error."""
    checkout = Path(os.environ["MINDSPEED_LLM_PATH"])
    os.environ["TRAINING_BACKEND"] = "none"
    sys.path.insert(0, str(checkout))
    code = compile(_source(checkout), CONVERTER, "exec")
    for line in sys.stdin:
        sys.argv = [CONVERTER, *json.loads(line)]
        answer = "ok"
        try:
            with contextlib.redirect_stdout(sys.stderr):
                exec(code, {"__name__": "__main__"})
        except BaseException:
            answer = traceback.format_exc()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
