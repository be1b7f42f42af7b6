"""What a recipe of NeMo sets, read from its syntax trees (`python_recipe`), as fields of a job."""

from collections.abc import Mapping
from pathlib import Path

from launcher.job import Value
from tools.recipe_sources.python_recipe import (
    CLASS,
    UNKNOWN,
    Config,
    Tree,
    class_defaults,
    configuration,
    fields,
    tree_of,
)

PROJECT = "NeMo"
# Where NeMo has what Megatron-LM's arguments name.
_NAMES = {
    "trainer.max_steps": "train_iters",
    "trainer.log_every_n_steps": "log_interval",
    "trainer.val_check_interval": "eval_interval",
    "trainer.limit_val_batches": "eval_iters",
    "data.seq_length": "seq_length",
    "data.global_batch_size": "global_batch_size",
    "data.micro_batch_size": "micro_batch_size",
    "optim.lr_scheduler.warmup_steps": "lr_warmup_iters",
    "optim.lr_scheduler.min_lr": "min_lr",
    "log.ckpt.every_n_train_steps": "save_interval",
}
_SECTIONS = ("trainer.strategy", "trainer.strategy.ddp", "optim.config", "model.config")
_CLUSTER = {"trainer.num_nodes": "cluster.nodes", "trainer.devices": "cluster.devices_per_node"}
# What its classes set and the table above names otherwise, or another way: the length is that of the data.
_OF_DATA = ("seq_length",)


def read(source: str, folders: Mapping[str, Path]) -> dict[str, Value]:
    """Return the fields that a recipe sets."""
    path, function = source.split(" ")[2:4]
    tree = tree_of(source, folders)
    config = configuration(tree, path, function)
    return of_configuration(config, tree, path) if isinstance(config, dict) else {}


def of_configuration(config: Config, tree: Tree, path: str) -> dict[str, Value]:
    """Return the fields that the configuration of a recipe sets."""
    model = _at(config, "model.config")
    if isinstance(model, dict) and isinstance(model.get(CLASS), str):
        defaults = class_defaults(tree, path, model[CLASS])
        model.update({name: value for name, value in defaults.items() if name not in (*model, *_OF_DATA)})
    values: Config = {}
    for section in _SECTIONS:
        found = _at(config, section)
        values |= {name: each for name, each in found.items() if name != CLASS} if isinstance(found, dict) else {}
    values |= {name: each for where, name in _NAMES.items() if (each := _at(config, where)) is not UNKNOWN}
    cluster = {field: each for where, field in _CLUSTER.items() if isinstance(each := _at(config, where), int)}
    # All in one section: its names are those of Megatron-LM's arguments.
    found = {field: value for field, value in fields({"train": values}).items() if value is not None}
    return {**found, **cluster}


def _at(config: Config, path: str) -> Value:
    node: Value = config
    for name in path.split("."):
        node = node.get(name, UNKNOWN) if isinstance(node, dict) else UNKNOWN
    return node
