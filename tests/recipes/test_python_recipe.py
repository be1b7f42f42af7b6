"""Recipes that are Python are read from their syntax trees: assignments, keywords, functions; never executed."""

from tools.recipe_sources.python_recipe import UNKNOWN, Tree, configuration, fields

FILES = {
    "src/megatron/bridge/recipes/own.py": """
from megatron.bridge.recipes.common import _common, LENGTH
from megatron.bridge.recipes.common import shorten as _shorten
from elsewhere import provider

def recipe():
    cfg = _common(steps=300)
    cfg.model = provider("a model")
    cfg.model = ModelProvider(num_layers=2, params_dtype=torch.bfloat16)
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.sequence_parallel = True
    cfg.dataset.seq_length = LENGTH
    _shorten(cfg)
    if cfg.model.num_layers > 1:
        cfg.train.micro_batch_size = 8
    return cfg
""",
    "src/megatron/bridge/recipes/common.py": """
LENGTH: int = 4096

def _adam(max_lr=1e-4, min_lr=None):
    least = min_lr if min_lr is not None else 1e-5
    return OptimizerConfig(lr=max_lr, min_lr=least), SchedulerConfig(start_weight_decay=0.033)

def _common(steps):
    optimizer, scheduler = _adam(max_lr=3e-4)
    return ConfigContainer(
        model=None,
        train=TrainingConfig(train_iters=steps, global_batch_size=32, micro_batch_size=1),
        dataset=DatasetConfig(),
        optimizer=optimizer,
        scheduler=scheduler,
    )

def shorten(cfg):
    cfg.train.global_batch_size = 16
""",
}
PATH = "src/megatron/bridge/recipes/own.py"


def test_values_are_those_that_running_it_would_set() -> None:
    config = configuration(Tree(FILES.__getitem__), PATH, "recipe")
    assert config["model"] == {
        "num_layers": 2,
        "params_dtype": "bf16",
        "tensor_model_parallel_size": 4,
        "sequence_parallel": True,
    }
    assert config["dataset"] == {"seq_length": 4096}
    assert config["optimizer"] == {"lr": 3e-4, "min_lr": 1e-5}
    assert (config["train"]["train_iters"], config["train"]["global_batch_size"]) == (300, 16)


def test_what_a_condition_decides_is_not_known() -> None:
    assert configuration(Tree(FILES.__getitem__), PATH, "recipe")["train"]["micro_batch_size"] is UNKNOWN


def test_fields_are_those_of_megatron_lm() -> None:
    found = fields(configuration(Tree(FILES.__getitem__), PATH, "recipe"))
    expected = {"parallel.tp": 4, "schedule.train_iters": 300, "optimizer.lr": 3e-4, "optimizer.weight_decay": 0.033}
    assert found.items() >= expected.items()
    assert "batch.micro_batch_size" not in found
