"""Run in an environment with MindFormers 1.6.0: its start of a training judges files, up to the network.

Standard input: JSON list of [file, devices]. Standard output: one JSON line of `null` or the error of each.
What runs is MindFormers' code in its order: template, context, parallel context, trainer, batch sizes, classes of the
data set, callbacks and optimizer, learning rate, rules, the model's configuration and, for mcore models, the layers of
every stage. No data is read, and no network is built.
"""

import json
import logging
import os
import sys
import types
from collections.abc import Mapping
from typing import Any
from unittest import mock

os.environ["RUN_MODE"] = "train"
_SECONDS = 20
_SAMPLES = 10_000
_MEANT_FOR_ASCEND = ("ascend_config", "device_id", "max_device_memory", "memory_optimize_level", "jit_config")


def judge(path: str, devices: int) -> None:
    """Go through MindFormers' start; raises what it raises."""
    import mindspore as ms
    from mindformers.core.context import build_context
    from mindformers.core.parallel_config import build_parallel_config
    from mindformers.dataset import check_dataset_config
    from mindformers.tools import check_rules
    from mindformers.tools.register.config import MindFormerConfig
    from mindformers.trainer import base_trainer
    from mindformers.trainer.build_trainer import build_trainer
    from mindformers.trainer.trainer import Trainer
    from mindformers.trainer.utils import check_runner_config

    config = MindFormerConfig(path)
    if config.run_mode is None:
        raise ValueError("no run_mode: run_mindformer.py does nothing")
    parallel = config.use_parallel
    _context(config)
    build_context(config)
    config.use_parallel = parallel
    _parallel_context(config, devices)
    for module in (check_rules, base_trainer):
        module.get_real_group_size = lambda: devices if parallel else 1
    check_rules.get_device_num = lambda: devices if parallel else 1
    started = types.SimpleNamespace(config=config)
    Trainer._check_config_type(started)
    build_parallel_config(config)
    trainer = build_trainer(config.trainer)
    trainer.train_dataset = types.SimpleNamespace(get_dataset_size=lambda: _SAMPLES)
    trainer.set_config(config, True)
    check_dataset_config(config)
    _registered(config)
    check_runner_config(config, trainer.train_dataset)
    check_rules.check_rules(config, mode="train")
    _model(config)
    with mock.patch.object(type(trainer), "get_train_data_size", return_value=_SAMPLES):
        trainer.create_lr_scheduler(config.lr_scale, config.lr_scale_factor)
    if config.lr_schedule is None and config.optimizer.learning_rate is None:
        raise ValueError("learning_rate must be input")
    ms.reset_auto_parallel_context()


def _context(config: Any) -> None:
    """Let the CPU target stand for Ascend; what only Ascend's runtime reads is left out."""
    config.use_parallel = False
    for name in _MEANT_FOR_ASCEND:
        config.context.pop(name, None)
    if config.context.device_target == "Ascend":
        config.context.device_target = "CPU"


def _parallel_context(config: Any, devices: int) -> None:
    """Set the parallel context as ParallelOperator does after the ranks have found each other."""
    import mindspore as ms
    from mindformers.core.context.parallel import ParallelOperator
    from mindformers.core.context.validators import execute_validator
    from mindformers.tools.register.config import MindFormerConfig

    ms.reset_auto_parallel_context()
    validated = MindFormerConfig(**config)
    execute_validator(validated)
    if config.use_parallel:
        operator = ParallelOperator(validated)
        operator.parallel_ctx["device_num"] = devices
        operator._set_ms_auto_parallel_context(**operator.parallel_ctx)


def _registered(config: Any) -> None:
    """Look up the classes that the file names, as their builders do."""
    from mindformers.tools.register import MindFormerModuleType, MindFormerRegister

    kinds: dict[str, tuple[Any, Any]] = {
        "optimizer": (MindFormerModuleType.OPTIMIZER, config.optimizer),
        "runner_wrapper": (MindFormerModuleType.WRAPPER, config.runner_wrapper),
        "train_dataset_task": (MindFormerModuleType.DATASET, config.train_dataset_task),
        "data_loader": (MindFormerModuleType.DATASET_LOADER, config.train_dataset_task.dataset_config.data_loader),
    }
    for name, (kind, settings) in kinds.items():
        if not isinstance(settings, Mapping):
            raise TypeError(f"{name} is {settings!r}")
        MindFormerRegister.get_cls(kind, settings["type"])
    for callback in config.callbacks:
        MindFormerRegister.get_cls(MindFormerModuleType.CALLBACK, callback["type"])


def _model(config: Any) -> None:
    from mindformers.models.build_config import get_model_config
    from mindformers.parallel_core.training_graph.transformer.utils import LayerSetting
    from mindformers.parallel_core.transformer_config_utils import convert_to_transformer_config

    config.model.model_config.parallel_config = config.parallel_config
    config.model.model_config.moe_config = config.moe_config
    model = get_model_config(config.model)
    if config.get_value("use_legacy", True):
        return
    latent = bool(getattr(model, "kv_lora_rank", None))
    made = convert_to_transformer_config(model, is_mla_model=latent)
    chunks = made.virtual_pipeline_model_parallel_size or 1
    LayerSetting(made.num_layers + (made.mtp_num_layers or 0), made.offset, made, chunks)


def _in_child(path: str, devices: int) -> str | None:
    """Judge in a process of its own: contexts are set once in a process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(_SECONDS)
        reported = None
        try:
            judge(path, devices)
        except BaseException as error:
            reported = f"{type(error).__name__}: {error}"
        os.write(writer, json.dumps(reported)[:60_000].encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else "process: ended without a word"


def main() -> None:
    """Judge every file."""
    logging.disable(logging.CRITICAL)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # MindSpore and MindFormers print.
    import mindformers.trainer  # noqa: F401  (imports take longer than any case)

    for path, devices in json.load(sys.stdin):
        print(json.dumps(_in_child(path, devices)), file=out, flush=True)


if __name__ == "__main__":
    main()
