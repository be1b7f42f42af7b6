"""Recipes that are Python are read from their syntax trees: assignments, keywords, functions; never executed."""

from pathlib import Path

from tools.recipe_sources import nemo_recipe, slime_script
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


NEMO = {
    "nemo/collections/llm/recipes/own.py": """
from nemo.collections.llm.gpt.model.own import OwnConfig
from nemo.collections.llm.recipes.optim import adam

def model():
    return run.Config(OwnModel, config=run.Config(OwnConfig))

def trainer(tensor_parallelism: int = 4, num_nodes: int = 2):
    strategy = run.Config(nl.MegatronStrategy, tensor_model_parallel_size=tensor_parallelism)
    return run.Config(nl.Trainer, strategy=strategy, num_nodes=num_nodes, devices=8, max_steps=100)

def recipe(num_nodes: int = 64, performance_mode: bool = False):
    found = run.Partial(pretrain, model=model(), trainer=trainer(num_nodes=num_nodes), optim=adam(max_lr=3e-4),
                        data=run.Config(MockDataModule, seq_length=8192, global_batch_size=512, micro_batch_size=1))
    if performance_mode:
        found = faster(found)
    return found
""",
    "nemo/collections/llm/gpt/model/own.py": """
class BaseConfig(TransformerConfig):
    hidden_size: int = 1024
    init_method_std: float = 0.01
    seq_length: int = 4096
    layer_spec: Callable = field(default_factory=lambda: 1)

class OwnConfig(BaseConfig):
    num_layers: int = 8
    hidden_size: int = 4 * 512
""",
    "nemo/collections/llm/recipes/optim.py": """
def adam(max_lr: float = 1e-4, min_lr=None):
    min_lr = min_lr if min_lr is not None else (0.1 * max_lr)
    config = run.Config(OptimizerConfig, lr=max_lr)
    return run.Config(Module, config=config, lr_scheduler=run.Config(Cosine, warmup_steps=50, min_lr=min_lr))
""",
}


def test_a_recipe_of_nemo_sets_fields_with_the_defaults_of_its_models_classes() -> None:
    path = "nemo/collections/llm/recipes/own.py"
    tree = Tree(NEMO.__getitem__, "nemo.collections.llm", "")
    found = nemo_recipe.of_configuration(configuration(tree, path, "recipe"), tree, path)
    wanted = {
        "parallel.tp": 4,
        "cluster.nodes": 64,
        "cluster.devices_per_node": 8,
        "schedule.train_iters": 100,
        "schedule.lr_warmup_iters": 50,
        "optimizer.lr": 3e-4,
        "optimizer.min_lr": 3e-5,
        "batch.seq_length": 8192,
        "batch.global_batch_size": 512,
        "model.hidden_size": 2048,
        "model.num_hidden_layers": 8,
        "model.initializer_range": 0.01,
    }
    assert {field: found.get(field) for field in wanted} == wanted


def test_a_script_of_slime_sets_megatrons_fields_and_those_of_its_own_options(tmp_path: Path) -> None:
    (tmp_path / "model.sh").write_text("LAYERS=4\nMODEL_ARGS=(--num-layers $LAYERS --hidden-size 256)\n", "utf-8")
    text = (
        'source "$(dirname -- "${BASH_SOURCE[0]}")/model.sh"\n'
        "GRPO_ARGS=(--kl-loss-coef 0.01 --rollout-temperature 0.8)\n"
        "ray job submit -- python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 8 --num-rollout 3000 \\\n"
        "  ${MODEL_ARGS[@]} ${GRPO_ARGS[@]} --tensor-model-parallel-size 2 --accumulate-allreduce-grads-in-fp32\n"
    )
    found = slime_script.of_script(text, tmp_path / "run.sh")
    wanted = {
        "model.num_hidden_layers": 4,
        "model.hidden_size": 256,
        "parallel.tp": 2,
        "task.beta": 0.01,
        "generation.temperature": 0.8,
        "schedule.train_iters": 3000,
        "cluster.nodes": 2,
        "cluster.devices_per_node": 8,
    }
    assert {field: found.get(field) for field in wanted} == wanted
    assert "precision.dtype" not in found
