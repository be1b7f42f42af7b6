"""The one model that every backend trains: random weights in Hugging Face's format, and a tokenizer that fits it."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launcher.families.config_json import config_from_model
from launcher.job import Job
from launcher.rehearse.random_weights import copy_tokenizer, make_directory
from launcher.rehearse.sample_data import tokenizer_directory

_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
# What transformers adds to a config.json and readers need.
_ADDED = ("architectures", "bos_token_id", "eos_token_id", "pad_token_id", "transformers_version")
# Norm weights of exactly 1 and biases of exactly 0 would hide an implementation that leaves them out.
_SPREAD = 0.1


def make_model(job: Job, folder: Path) -> Path:
    """Write random weights of the job's model, in the job's number format; return the directory.

    Raises:
        ModelConfigError: a size is missing, or the family's config.json cannot express a value.
        ModuleNotFoundError: transformers is missing.
        ValueError: the installed transformers does not know the model.
    """
    dtype = _DTYPES.get(str(job.precision.dtype), "float32")
    config = config_from_model(job.model, torch_dtype=dtype)
    tokenizer = folder / "tokenizer"
    write_tokenizer(tokenizer, int(job.model.vocab_size or 0))
    make_directory(config, tokenizer, folder / "model", seed=job.seed or 0, spread=_SPREAD)
    _write_plain_config(folder / "model" / "config.json", config)
    return folder / "model"


def _write_plain_config(file: Path, made_from: Mapping[str, Any]) -> None:
    """Write config.json in the names of transformers 4, which every release reads.

    MindFormers 1.x refuses names of transformers 5, and those that transformers derives.
    """
    saved = json.loads(file.read_text(encoding="utf-8"))
    added = {name: saved[name] for name in _ADDED if name in saved}
    file.write_text(json.dumps({**made_from, **added}, indent=2) + "\n", encoding="utf-8")


def with_tokenizer(weights: Path, folder: Path) -> Path:
    """Return a directory with links to a model's weights, its config.json, and the tokenizer of the data set.

    The samples consist of the shipped text, whose tokens any vocabulary of 512 has.
    """
    config = json.loads((weights / "config.json").read_text(encoding="utf-8"))
    out, tokenizer = folder / "model", folder / "tokenizer"
    write_tokenizer(tokenizer, int(config["vocab_size"]))
    out.mkdir(parents=True)
    shutil.copyfile(weights / "config.json", out / "config.json")
    for file in weights.glob("*.safetensors*"):
        (out / file.name).symlink_to(file.resolve())
    copy_tokenizer(tokenizer, out)
    return out


def write_tokenizer(folder: Path, vocabulary: int) -> None:
    """Write the shipped tokenizer with as many tokens as the model has.

    Megatron-LM pads the tokenizer's size to the embedding's, ms-swift takes it from config.json: only a tokenizer of
    the model's size gives one softmax on both.
    """
    shipped = Path(tokenizer_directory())
    folder.mkdir(parents=True)
    copy_tokenizer(shipped, folder)
    content: dict[str, Any] = json.loads((shipped / "tokenizer.json").read_text(encoding="utf-8"))
    last = content["added_tokens"][-1]
    for number in range(last["id"] + 1, vocabulary):
        content["added_tokens"].append({**last, "id": number, "content": f"<|unused_{number}|>"})
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
