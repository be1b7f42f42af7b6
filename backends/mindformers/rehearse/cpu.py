"""Installs what MindSpore's CPU target lacks in each rank before MindFormers' unmodified entry point runs."""

import functools
import inspect
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from backends.mindformers.rehearse import TESTED
from launcher.rehearse.cpu import recorder, standins
from launcher.rehearse.native import installed_version

_BROADCAST_LEVEL = "dataset_broadcast_opt_level"


def install(script: str) -> None:
    """Make ``script`` (run_mindformer.py) train on MindSpore's CPU target; no upstream module is imported here."""
    from launcher.rehearse.cpu import dataset_helpers
    from launcher.rehearse.cpu.after_import import after_import

    _warn_of_other_versions()
    dataset_helpers.install(package="mindformers.dataset.blended_datasets", compiled="helpers", compiler="utils")
    after_import("mindspore", _operators_for_the_cpu_target)
    after_import("mindspore", _no_device_affinity)
    after_import("mindspore.context", _broadcast_level_from_the_json)
    after_import("mindformers.parallel_core.inference.parallel_state", _all_ranks_are_data_parallel)
    after_import("mindformers.modules.layers", _experts_as_in_the_semi_automatic_mode)
    after_import("mindformers.trainer.base_trainer", _no_sink_after_the_checks)
    after_import("mindformers.trainer.base_trainer", _accumulate_in_data_parallel_mode)
    after_import("mindformers.parallel_core.training_graph.transformer.moe.ffn", _experts_without_dispatch)
    after_import("mindformers.wrapper.wrapper", _overflow_from_the_gradients)
    after_import("mindformers.wrapper.wrapper", _mean_of_accumulated_gradients)
    after_import("mindformers.core.callback.callback", _separate_losses_before_they_are_cleared)
    after_import("mindformers.core.callback.callback", _record_iterations)
    after_import("mindformers.core.callback.callback", _expert_load_of_all_ranks)


def _warn_of_other_versions() -> None:
    found = (installed_version("mindformers"), installed_version("mindspore"))
    if found not in TESTED:
        tested = " and ".join(f"{name} with mindspore {core}" for name, core in TESTED)
        line = (
            f"mindformers {found[0]} with mindspore {found[1]} is not a pair the stand-ins were tested with ({tested})"
        )
        standins.warn(line, rank=os.environ.get("RANK_ID", "0"))


def _operators_for_the_cpu_target(_module: ModuleType) -> None:
    """Replace operators that have only an Ascend kernel by composed ones; MindSpore has bound its own by now."""
    import mindspore.mint.nn.functional
    from mindspore.communication import comm_func
    from mindspore.ops import auto_generate, operations

    from backends.mindformers.rehearse import operators

    auto_generate.__dict__.update(operators.FOR_AUTO_GENERATE)
    mindspore.mint.nn.functional.embedding = operators.embedding
    comm_func.barrier = operators.barrier
    for module in (operations, operations.nn_ops):
        module.__dict__.update(operators.FOR_OPERATIONS)


def _experts_without_dispatch(module: ModuleType) -> None:
    """Replace dispatch, grouped matrix product and combination, which run in a Morph operator, for Ascend only."""
    from backends.mindformers.rehearse import operators

    module.FFNGroupedGEMM.construct = operators.experts


def _experts_as_in_the_semi_automatic_mode(module: ModuleType) -> None:
    """Build the experts of older models as on the cluster: data parallel mode requires moe_config.expert_group_size.

    Only that mode reads it (modules/layers.py:480, 1.6.0): the number of tokens of an expert, which is fixed by the
    capacity otherwise.
    """
    from backends.mindformers.rehearse.operators import ExpertMatMul

    linear = module.Linear
    initialize = linear.__init__

    @functools.wraps(initialize)
    def initialize_without_groups(self: Any, *args: Any, **settings: Any) -> None:
        initialize(self, *args, **{**settings, "expert_group_size": settings.get("expert_group_size") or 1})
        self.use_expert_group_size = False
        if self.expert_flag and not self.use_gmm:
            self.matmul = ExpertMatMul(self.transpose_b)

    linear.__init__ = initialize_without_groups


def _no_device_affinity(module: ModuleType) -> None:
    """Disable thread binding, which divides the cores by the number of Ascend devices, 0 on CPU."""
    module.runtime.set_cpu_affinity = lambda *_args, **_kwargs: None


def _broadcast_level_from_the_json(module: ModuleType) -> None:
    """Return dataset_broadcast_opt_level as on Ascend: MindSpore reads parallel_speed_up.json only for that target.

    MindFormers rejects Megatron data sets below level 3 (trainer/base_trainer.py:_process_megatron_dataset, 1.6.0).
    """
    set_context, get_context = module.set_context, module.get_context
    levels: dict[str, int] = {}

    @functools.wraps(set_context)
    def set_and_remember(**settings: Any) -> None:
        path = (settings.get("ascend_config") or {}).get("parallel_speed_up_json_path")
        if path:
            level = json.loads(Path(path).read_text()).get(_BROADCAST_LEVEL, 0)
            levels[_BROADCAST_LEVEL] = int(level)
        set_context(**settings)

    @functools.wraps(get_context)
    def get_or_remembered(name: str) -> Any:
        return levels.get(name) or get_context(name)

    vars(module).update(set_context=set_and_remember, get_context=get_or_remembered)


def _all_ranks_are_data_parallel(module: ModuleType) -> None:
    """Pass the true data parallel size to mcore models.

    In data parallel mode MindFormers resets it to 1 (trainer/base_trainer.py:285, 1.8.0) and, since 1.7, then
    finds that the sizes do not match the world size (parallel_core/inference/parallel_state.py:258).
    """
    initialize = getattr(module, "initialize_model_parallel", None)
    if initialize is None:
        return

    @functools.wraps(initialize)
    def initialize_with_all_ranks(*args: Any, **sizes: Any) -> Any:
        return initialize(*args, **{**sizes, "data_parallel_size": module.get_group_size()})

    module.__dict__[initialize.__name__] = initialize_with_all_ranks


def _no_sink_after_the_checks(module: ModuleType) -> None:
    """Turn data sinking off after MindFormers has checked the YAML's setting: the CPU target does not support it.

    With it, MindFormers makes each step an epoch, and MindSpore on CPU iterates over the whole data set in each.
    """
    trainer = module.BaseTrainer
    postprocess = trainer._train_dataset_postprocess

    @functools.wraps(postprocess)
    def postprocess_and_unsink(self: Any, dataset: Any, config: Any) -> Any:
        result = postprocess(self, dataset, config)  # 1.6 also returns the configuration, 1.8 does not
        config.runner_config.sink_mode = False
        return result

    trainer._train_dataset_postprocess = postprocess_and_unsink


def _accumulate_in_data_parallel_mode(module: ModuleType) -> None:
    """Accumulate gradients in data parallel mode, as MindFormers does in the semi-automatic mode of the cluster.

    It resets the number of steps to 1 in any other mode (trainer/base_trainer.py:312, 1.8.0). With the number kept, it
    multiplies the batch, adds the micro-batches up in one graph and divides the printed loss, all by itself.
    """
    trainer = module.BaseTrainer
    check = trainer._check_grad_accumulation_steps

    @functools.wraps(check)
    def check_and_keep(self: Any) -> None:
        steps = self.config.runner_config.gradient_accumulation_steps
        check(self)
        self.config.runner_config.gradient_accumulation_steps = steps or 1
        if (steps or 1) > 1 and self.config.calculate_per_token_loss:
            # As _reset_wrapper_for_grad_accu does in the semi-automatic mode: the model then has two outputs.
            self.config.runner_wrapper.calculate_per_token_loss = True

    trainer._check_grad_accumulation_steps = check_and_keep


def _mean_of_accumulated_gradients(module: ModuleType) -> None:
    """Divide the gradients by the number of micro-batches; the cell of the semi-automatic mode does so by itself."""
    from mindspore import Tensor

    cell = module.MFTrainOneStepCell
    initialize = cell.__init__

    @functools.wraps(initialize)
    def initialize_with_factor(self: Any, network: Any, *args: Any, **settings: Any) -> None:
        initialize(self, network, *args, **settings)
        self.grad_scale_factor = Tensor([float(getattr(network, "micro_size", 1))], self.grad_scale_factor.dtype)

    cell.__init__ = initialize_with_factor


def _expert_load_of_all_ranks(module: ModuleType) -> None:
    """Update the experts' bias from the tokens of all ranks: in data parallel mode each rank counts its own.

    In the semi-automatic mode of the cluster the counters are of the whole batch.
    """
    callback = module.TopkBiasBalanceCallback
    update = callback._update_topk_bias

    @functools.wraps(update)
    def reduce_and_update(self: Any, network: Any) -> Any:
        for name, load in network.parameters_and_names():
            if name.endswith("expert_load"):
                load.set_data(_mean_of_ranks(load))
        return update(self, network)

    callback._update_topk_bias = reduce_and_update


def _overflow_from_the_gradients(module: ModuleType) -> None:
    """Detect overflow from the gradients.

    MindSpore's cell uses Ascend's overflow operators on every target but the GPU (nn/wrap/loss_scale.py:565-573,
    2.7.0), and neither NPUGetFloatStatusV2 nor FloatStatus has a CPU kernel.
    """
    from mindspore import ops

    def get_overflow_status(self: Any, status: Any, compute_output: Any) -> Any:
        total = ops.ReduceSum()(ops.Abs()(compute_output[0]))
        return ops.LogicalNot()(ops.IsFinite()(total))

    module.MFTrainOneStepCell.get_overflow_status = get_overflow_status


def _separate_losses_before_they_are_cleared(module: ModuleType) -> None:
    """Copy the losses that MFLossMonitor prints apart: on CPU asnumpy shares the memory of the parameter.

    MindFormers sets the parameters to 0 before it prints them (core/callback/callback.py:117, 1.8.0).
    """
    if not hasattr(module, "_get_separate_loss"):
        return

    def get_separate_loss() -> tuple[Any, ...]:
        names = ("lm_loss", "aux_loss", "mtp_loss")
        losses = tuple(module.parameter_register.get(name).asnumpy().copy() for name in names)
        for name in names:
            module.parameter_register.clear(name)
        return losses

    module.__dict__["_get_separate_loss"] = get_separate_loss


def _record_iterations(module: ModuleType) -> None:
    """Record what MFLossMonitor prints, in full precision; the loss as the mean over ranks, each of which has its own.

    It is called at every step with callbacks.MFLossMonitor.per_print_times: 1 (`logging.interval=1`).
    """
    if recorder.VARIABLE not in os.environ:
        return
    print_values = module.MFLossMonitor.print_output_info
    signature = inspect.signature(print_values)

    @functools.wraps(print_values)
    def print_and_record(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        # Without the losses of experts and multi-token prediction, which models that have them report apart.
        alone = given.get("main_loss")
        loss, norm = _mean_over_ranks(given["loss"] if alone is None else alone), given["global_norm"]
        step = given["cur_step_num"] + (given["cur_epoch_num"] - 1) * given["steps_per_epoch"]
        is_first = os.environ.get("RANK_ID", "0") == "0"
        recorder.record(step, loss, None if norm is None else _number(norm), reports=is_first)
        return print_values(*args, **kwargs)

    module.MFLossMonitor.print_output_info = print_and_record


def _number(value: Any) -> float:
    return float(value.asnumpy().item() if hasattr(value, "asnumpy") else getattr(value, "item", lambda: value)())


def _mean_over_ranks(loss: Any) -> float:
    from mindspore import Tensor

    return _number(_mean_of_ranks(Tensor([_number(loss)])))


def _mean_of_ranks(tensor: Any) -> Any:
    """Return the mean of a tensor over all ranks; the tensor itself on one rank."""
    from mindspore.communication import get_group_size
    from mindspore.ops import operations

    if int(os.environ.get("MS_WORKER_NUM", "1")) == 1:
        return tensor
    return operations.AllReduce()(tensor) / int(get_group_size())
