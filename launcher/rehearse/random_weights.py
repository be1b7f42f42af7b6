"""Creates a Hugging Face directory with random weights, for a native rehearsal without the model's weights.

Also a script that does not import this package, for another environment: ``python random_weights.py --config C
--tokenizer T --out O``.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NOT_TOKENIZER = ("config.json", "generation_config.json")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".index.json", ".py")
_GIB = 1 << 30
# Beside a language model: the section of config.json, and what the names of its tensors have in them.
_VISION, _TOWER = "vision_config", "visual."
# Families whose experts' matrices are published, and read by mcore-bridge, with swapped dimensions.
_SWAPPED = ("qwen3_vl_moe",)
# Its sizes while the language model is built: it is not kept (Qwen2-VL's width is embed_dim).
_SMALLEST = {
    "depth": 1,
    "embed_dim": 8,
    "intermediate_size": 8,
    "num_heads": 1,
    "num_position_embeddings": 4,
    "fullatt_block_indexes": [],
    "deepstack_visual_indexes": [],
}


def make_directory(
    config: Mapping[str, Any],
    tokenizer: Path,
    out: Path,
    *,
    seed: int = 0,
    limit_gib: float = 8.0,
    spread: float = 0.0,
) -> int:
    """Write ``config.json``, random ``model.safetensors`` and a copy of the tokenizer; return the number of parameters.

    ``config`` is the content of a Hugging Face config.json and must name its ``model_type``. The same config and seed
    give the same weights, drawn by the model's initialisation in float32 and stored in the config's dtype (bfloat16
    without one). ``spread`` is the standard deviation of what is added to norm weights and biases, which are 1 and 0.
    Needs transformers and torch. Raises ValueError where the model is unknown, larger than ``limit_gib`` of float32
    weights, or has a smaller vocabulary than the tokenizer; FileExistsError where ``out`` has files in it.
    """
    import torch
    import transformers

    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} is not empty: random weights do not replace other files")
    built = _configuration(transformers, config)
    _check_vocabulary(transformers, tokenizer, built)
    _check_size(torch, transformers, config, built, limit_gib)
    # Its bar is drawn in logs, too; random weights are written in seconds.
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(seed)
    model = _auto_class(transformers, config).from_config(built, **_float32(torch, transformers))
    for vector in (tensor for tensor in model.state_dict().values() if tensor.dim() == 1 and spread):
        vector.add_(torch.randn_like(vector) * spread)
    out.parent.mkdir(parents=True, exist_ok=True)
    # A separate folder: other files beside `out` belong to the user.
    unfinished = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    unfinished.chmod(0o755)
    model.to(_dtype(torch, config)).save_pretrained(unfinished, max_shard_size="1000GB")
    if config.get(_VISION):
        _remove_vision(config, unfinished)
    _add_mtp_layers(torch, transformers, config, unfinished, seed)
    copy_tokenizer(tokenizer, unfinished)
    unfinished.replace(out)  # an interrupted run leaves no incomplete directory at `out`
    return int(sum(parameter.numel() for name, parameter in model.named_parameters() if _TOWER not in name))


def copy_tokenizer(tokenizer: Path, out: Path) -> None:
    """Copy what belongs to a tokenizer (every file that is neither a config nor weights nor code) into ``out``."""
    for file in sorted(tokenizer.iterdir()):
        if file.is_file() and file.name not in _NOT_TOKENIZER and not file.name.endswith(_WEIGHTS):
            shutil.copyfile(file, out / file.name)


def _configuration(transformers: Any, config: Mapping[str, Any]) -> Any:
    values = {name: value for name, value in config.items() if name not in ("architectures", "auto_map")}
    model_type = values.pop("model_type", None)
    if values.get(_VISION):
        vision = values[_VISION]
        small = {name: size for name, size in _SMALLEST.items() if name in vision}
        narrow = {"hidden_size": 8} if "out_hidden_size" in vision else {}
        values[_VISION] = {**vision, **small, **narrow}
    if model_type is None:
        raise ValueError("config.json has no model_type: the model to build is unknown")
    try:
        return transformers.AutoConfig.for_model(model_type, **values)
    except ValueError as error:
        raise ValueError(f"transformers {transformers.__version__} has no model_type {model_type!r}") from error


def _auto_class(transformers: Any, config: Mapping[str, Any]) -> Any:
    return transformers.AutoModelForImageTextToText if config.get(_VISION) else transformers.AutoModelForCausalLM


def _remove_vision(config: Mapping[str, Any], out: Path) -> None:
    """Leave the language model alone: a vision tower of random weights is of no use to a training of text."""
    from safetensors.torch import load_file, save_file

    (weights,) = out.glob("*.safetensors")
    language = {name: value for name, value in load_file(weights).items() if _TOWER not in name}
    if config.get("model_type") in _SWAPPED:
        swapped = (name for name in language if name.endswith((".gate_up_proj", ".down_proj")))
        language |= {name: language[name].transpose(1, 2).contiguous() for name in swapped}
    save_file(language, weights, metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _float32(torch: Any, transformers: Any) -> dict[str, Any]:
    name = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
    return {name: torch.float32}


def _dtype(torch: Any, config: Mapping[str, Any]) -> Any:
    return getattr(torch, str(config.get("dtype") or config.get("torch_dtype") or "bfloat16").removeprefix("torch."))


def _check_size(torch: Any, transformers: Any, config: Mapping[str, Any], built: Any, limit_gib: float) -> None:
    with torch.device("meta"):
        model = _auto_class(transformers, config).from_config(built)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if parameters * 4 > limit_gib * _GIB:
        raise ValueError(
            f"the model has {parameters / 1e9:.1f} billion parameters, {parameters * 4 / _GIB:.0f} GiB in float32: "
            f"more than the limit of {limit_gib:g} GiB for random weights; rehearse.shrink=true makes it smaller"
        )


def _add_mtp_layers(torch: Any, transformers: Any, config: Mapping[str, Any], out: Path, seed: int) -> None:
    """Add the multi-token prediction layers, which transformers omits, under DeepSeek-V3's names, which GLM has, too.

    Layer L+i is one more decoder layer with ``enorm``, ``hnorm``, ``eh_proj`` and its own copy of embedding and head.
    """
    extra = int(config.get("num_nextn_predict_layers") or 0)
    if not extra:
        return
    from safetensors.torch import load_file, save_file

    layers, hidden = int(config["num_hidden_layers"]), int(config["hidden_size"])
    longer = _configuration(transformers, {**config, "num_hidden_layers": layers + extra})
    torch.manual_seed(seed)
    deeper = transformers.AutoModelForCausalLM.from_config(longer, **_float32(torch, transformers))
    dtype, names = _dtype(torch, config), [f"model.layers.{layers + index}." for index in range(extra)]
    with_extra = out / "with-mtp"
    deeper.to(dtype).save_pretrained(with_extra, max_shard_size="1000GB")
    (weights,) = out.glob("*.safetensors")
    state, donor = load_file(weights), load_file(with_extra / "model.safetensors")
    state.update({name: value for name, value in donor.items() if name.startswith(tuple(names))})
    for name in names:
        state[f"{name}eh_proj.weight"] = (torch.randn(hidden, 2 * hidden) * longer.initializer_range).to(dtype)
        for norm in ("enorm", "hnorm", "shared_head.norm"):
            state[f"{name}{norm}.weight"] = torch.ones(hidden, dtype=dtype)
        state[f"{name}embed_tokens.weight"] = state["model.embed_tokens.weight"].clone()
        head = state.get("lm_head.weight", state["model.embed_tokens.weight"])
        state[f"{name}shared_head.head.weight"] = head.clone()
    save_file(state, weights, metadata={"format": "pt"})
    shutil.rmtree(with_extra)
    written = json.loads((out / "config.json").read_text(encoding="utf-8"))
    (out / "config.json").write_text(json.dumps({**written, "num_nextn_predict_layers": extra}, indent=2) + "\n")


def _check_vocabulary(transformers: Any, tokenizer: Path, built: Any) -> None:
    tokens = len(transformers.AutoTokenizer.from_pretrained(tokenizer))
    size = built.get_text_config().vocab_size
    if tokens > size:
        raise ValueError(
            f"the tokenizer has {tokens} tokens but model.vocab_size is {size}: token numbers would be out of range"
        )


def main(arguments: list[str] | None = None) -> int:
    """Create a directory from the command line; return 0, or 1 with one line on stderr on failure."""
    parser = argparse.ArgumentParser(description=make_directory.__doc__)
    parser.add_argument("--config", type=Path, required=True, help="config.json of the model")
    parser.add_argument("--tokenizer", type=Path, required=True, help="directory with the tokenizer's files")
    parser.add_argument("--out", type=Path, required=True, help="directory to write; must be empty or absent")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit-gib", type=float, default=8.0)
    given = parser.parse_args(arguments)
    try:
        config = json.loads(given.config.read_text(encoding="utf-8"))
        made = make_directory(config, given.tokenizer, given.out, seed=given.seed, limit_gib=given.limit_gib)
    except (ValueError, OSError, ImportError) as error:
        sys.stderr.write(f"random weights: {error}\n")
        return 1
    print(json.dumps({"out": str(given.out), "parameters": made}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
