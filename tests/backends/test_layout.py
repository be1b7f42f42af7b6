"""Layout, captured kernels and checkpoints in each backend's own words: written, read back, or refused by name."""

from typing import Any

import pytest

from launcher.job import value_at
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import read_back
from tests.backends.small_jobs import LM, LM_12, MF, MF_OLD, MS, MS_OLD, SWIFT, SWIFT_3, SWIFT_36, job_of, written

SWIFT_4 = ("megatron", "4.0.0")
_FSDP_12 = {"use-distributed-optimizer": True, "use-custom-fsdp": True}
_FSDP_16 = {"use-distributed-optimizer": True, "use-megatron-fsdp": True, "ckpt-format": "fsdp_dtensor"}
_STRATEGY = "data-parallel-sharding-strategy"
_LOCAL = {"checkpoint.non_persistent.type": "local", "checkpoint.non_persistent.local_dir": "/ssd"}

# What a job says -> what each backend is told, of which all is said by these fields.
EXPECTED: dict[str, tuple[dict[str, Any], dict[tuple[str, str], dict[str, Any]]]] = {
    "gloo": (
        {"parallel.communication.backend": "gloo"},
        {
            LM: {"distributed-backend": "gloo"},
            MS_OLD: {"distributed-backend": "gloo"},
            SWIFT_36: {"ddp_backend": "gloo"},
            SWIFT: {"ddp_backend": "gloo"},
        },
    ),
    "UCC between stages": (
        {"parallel.communication.pipeline_backend": "ucc"},
        {LM: {"pipeline-model-parallel-comm-backend": "ucc"}, MS: {"pipeline-model-parallel-comm-backend": "ucc"}},
    ),
    "NCCL's file": (
        {"parallel.communication.nccl_config": "nccl.yaml"},
        {LM_12: {"nccl-communicator-config-path": "nccl.yaml"}, MS_OLD: {"nccl-communicator-config-path": "nccl.yaml"}},
    ),
    "ring exchange": (
        {"parallel.communication.ring_exchange_p2p": True},
        {LM: {"use-ring-exchange-p2p": True}, MS_OLD: {"use-ring-exchange-p2p": True}},
    ),
    "ZeRO 3": (
        {"parallel.zero_stage": 3},
        {
            LM: {**_FSDP_16, _STRATEGY: "optim_grads_params"},
            LM_12: {**_FSDP_12, _STRATEGY: "optim_grads_params"},
            MS: {**_FSDP_12, _STRATEGY: "optim_grads_params"},
            SWIFT: {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads_params"},
        },
    ),
    "ZeRO 2": ({"parallel.zero_stage": 2}, {LM_12: {**_FSDP_12, _STRATEGY: "optim_grads"}}),
    "Megatron's FSDP of nothing": (
        {"parallel.zero_stage": 0, "parallel.fsdp.implementation": "megatron"},
        {
            LM: {**_FSDP_16, _STRATEGY: "no_shard"},
            SWIFT: {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "no_shard"},
        },
    ),
    "torch's FSDP": (
        {"parallel.zero_stage": 3, "parallel.fsdp.implementation": "torch"},
        {LM: {"use-torch-fsdp2": True}, MS: {"use-torch-fsdp2": True}},
    ),
    "the distributed optimizer": (
        {"parallel.distributed_optimizer": True},
        {where: {"use-distributed-optimizer": True} for where in (LM, LM_12, MS, MS_OLD)},
    ),
    "units of FSDP": (
        {"parallel.fsdp.communication_unit_size": 9, "parallel.fsdp.init_model_with_meta_device": True},
        {LM: {"suggested-communication-unit-size": 9, "init-model-with-meta-device": True}},
    ),
    "transposed FP8": (
        {"parallel.fsdp.keep_fp8_transpose_cache": True},
        {
            LM: {"keep-fp8-transpose-cache": True},
            LM_12: {"keep-fp8-transpose-cache-when-using-custom-fsdp": True},
            MS: {"keep-fp8-transpose-cache-when-using-custom-fsdp": True},
        },
    ),
    "checkpoints of shards": (
        {"parallel.fsdp.strict_load": False},
        {LM: {"no-strict-fsdp-dtensor-load": True}, SWIFT: {"strict_fsdp_dtensor_load": False}},
    ),
    "graphs of Megatron's": (
        {"kernels.cuda_graph.impl": "local", "kernels.cuda_graph.warmup_steps": 5},
        {
            LM: {"cuda-graph-impl": "local", "cuda-graph-warmup-steps": 5},
            LM_12: {"enable-cuda-graph": True, "cuda-graph-warmup-steps": 5},
        },
    ),
    "graphs of attention": (
        {"kernels.cuda_graph.impl": "transformer_engine", "kernels.cuda_graph.scope": ("attn",)},
        {
            LM: {"cuda-graph-impl": "transformer_engine", "cuda-graph-scope": ("attn",)},
            LM_12: {"external-cuda-graph": True, "cuda-graph-scope": "attn"},
        },
    ),
    "gradients": (
        {
            "overlap.gradient_reduce_div_fusion": False,
            "overlap.pad_buckets": True,
            "overlap.align_grad_reduce": False,
            "overlap.align_param_gather": False,
        },
        {
            where: {
                "no-gradient-reduce-div-fusion": True,
                "ddp-pad-buckets-for-high-nccl-busbw": True,
                "no-align-grad-reduce": True,
                "no-align-param-gather": True,
            }
            for where in (LM, LM_12, MS)
        },
    ),
    "stages aligned": (
        {"overlap.align_grad_reduce": False, "overlap.align_param_gather": False},
        {SWIFT: {"align_grad_reduce": False, "align_param_gather": False}},
    ),
    "products of tensor parallelism": (
        {"overlap.tp.bulk_dgrad": False, "overlap.tp.overlap_rs_dgrad": True, "overlap.tp.config": "ub.yaml"},
        {
            LM: {"no-tp-comm-bulk-dgrad": True, "tp-comm-overlap-rs-dgrad": True, "tp-comm-overlap-cfg": "ub.yaml"},
            MS_OLD: {
                "disable-tp-comm-bulk-dgrad": True,
                "tp-comm-overlap-rs-dgrad": True,
                "tp-comm-overlap-cfg": "ub.yaml",
            },
        },
    ),
    "reduction of input gradients": (
        {"overlap.tp_allreduce": False},
        {
            LM: {"no-async-tensor-model-parallel-allreduce": True},
            MS: {"no-async-tensor-model-parallel-allreduce": True},
        },
    ),
    "the optimizer on the host": (
        {
            "offload.torch_optimizer": True,
            "offload.overlap_cpu_optimizer_d2h_h2d": True,
            "offload.pin_cpu_grads": False,
            "offload.pin_cpu_params": False,
        },
        {
            LM: {
                "use-torch-optimizer-for-cpu-offload": True,
                "overlap-cpu-optimizer-d2h-h2d": True,
                "no-pin-cpu-grads": True,
                "no-pin-cpu-params": True,
            }
        },
    ),
    "the embedding's output": (
        {"kernels.clone_scatter_output_in_embedding": False},
        {LM: {"no-clone-scatter-output-in-embedding": True}, MS_OLD: {"no-clone-scatter-output-in-embedding": True}},
    ),
    "samples from all": (
        {"data.sharding": False},
        {
            LM: {"no-data-sharding": True},
            MS_OLD: {"no-data-sharding": True},
            SWIFT_3: {"no_data_sharding": True},
            SWIFT: {"data_sharding": False},
        },
    ),
    "checkpoints of one node": (
        {**_LOCAL, "checkpoint.non_persistent.save_interval": 10, "checkpoint.non_persistent.local_algo": "atomic"},
        {
            where: {
                "non-persistent-ckpt-type": "local",
                "non-persistent-local-ckpt-dir": "/ssd",
                "non-persistent-save-interval": 10,
                "non-persistent-local-ckpt-algo": "atomic",
            }
            for where in (LM, LM_12)
        },
    ),
    "copies on other nodes": (
        {
            **_LOCAL,
            "checkpoint.non_persistent.replication": True,
            "checkpoint.non_persistent.replication_jump": 8,
            "checkpoint.non_persistent.replication_factor": 3,
        },
        {
            LM: {
                "non-persistent-ckpt-type": "local",
                "non-persistent-local-ckpt-dir": "/ssd",
                "replication": True,
                "replication-jump": 8,
                "replication-factor": 3,
            }
        },
    ),
    "a conversion": (
        {"checkpoint.convert.format": "torch_dist", "checkpoint.convert.save": "new"},
        {LM: {"ckpt-convert-format": "torch_dist", "ckpt-convert-save": "new"}},
    ),
    "what comes from a checkpoint": (
        {"checkpoint.load_parallel_arguments": True, "checkpoint.load_tokenizer": False},
        {
            LM: {"use-mp-args-from-checkpoint-args": True, "no-use-tokenizer-model-from-checkpoint-args": True},
            MS: {"use-mp-args-from-checkpoint-args": True, "no-use-tokenizer-model-from-checkpoint-args": True},
        },
    ),
    "checkpoints that stay": (
        {"checkpoint.save_retain_interval": 500},
        {LM: {"save-retain-interval": 500}, SWIFT_3: {"save_retain_interval": 500}},
    ),
    "saving beside training": (
        {"checkpoint.async_save": True},
        {
            LM: {"async-save": True, "use-persistent-ckpt-worker": True},
            LM_12: {"async-save": True},
            SWIFT: {"async_save": True},
        },
    ),
    "a worker that stays": (
        {"checkpoint.persistent_worker": True},
        {
            LM: {"use-persistent-ckpt-worker": True},
            LM_12: {"use-persistent-ckpt-worker": True},
            SWIFT_3: {"use_persistent_ckpt_worker": True},
        },
    ),
    "layouts of weights": (
        {"checkpoint.save_pre_mcore_014": True, "checkpoint.optimizer_reshardable_mem_efficient": True},
        {
            SWIFT_4: {
                "dist_ckpt_save_pre_mcore_014": True,
                "distrib_optim_fully_reshardable_mem_efficient": True,
            }
        },
    ),
    "torch's own sharded format": ({"checkpoint.format": "torch_dcp"}, {LM: {"ckpt-format": "torch_dcp"}}),
    "zarr": (
        {"checkpoint.format": "zarr"},
        {LM_12: {"ckpt-format": "zarr"}, MS_OLD: {"use-dist-ckpt": True, "dist-ckpt-format": "zarr"}},
    ),
    "sharded checkpoints": ({"checkpoint.format": "torch_dist"}, {MS_OLD: {"use-dist-ckpt": True}}),
    "allocations": (
        {"profiler.memory_history": True, "profiler.memory_snapshot_path": "m.pickle"},
        {
            LM: {"record-memory-history": True, "memory-snapshot-path": "m.pickle"},
            MS: {"record-memory-history": True, "memory-snapshot-path": "m.pickle"},
        },
    ),
}
CASES = [(name, where) for name, (_, everywhere) in EXPECTED.items() for where in everywhere]


@pytest.mark.parametrize(("name", "where"), CASES, ids=[f"{name}-{' '.join(where)}" for name, where in CASES])
def test_a_job_says_it_in_the_backends_arguments_and_reads_them_back(name: str, where: tuple[str, str]) -> None:
    reported, everywhere = EXPECTED[name]
    job = job_of(**{path.replace(".", "__"): value for path, value in reported.items()})
    given, refused = written(job, where)
    usual, _ = written(job_of(), where)
    assert {flag: value for flag, value in given.items() if usual.get(flag) != value} == everywhere[where]
    assert not set(reported) & set(refused)
    back = read_back(given, get_backend(where[0]), where[1])
    assert {path: value_at(back.job, path) for path in reported} == reported
    assert not set(everywhere[where]) & {each.flag for each in back.unmapped}


# Field, value -> on which backend it is told, and how gravely.
REFUSED: dict[str, tuple[str, Any, dict[tuple[str, str], str]]] = {
    "ucc": ("parallel.communication.pipeline_backend", "ucc", {SWIFT: "warning", MF: "warning", MS_OLD: "warning"}),
    "gloo": ("parallel.communication.backend", "gloo", {MF: "warning"}),
    "FSDP of torch": ("parallel.fsdp.implementation", "torch", {SWIFT: "error", SWIFT_3: "error", MS_OLD: "warning"}),
    "ZeRO 3 before FSDP": ("parallel.zero_stage", 3, {MS_OLD: "error", SWIFT_4: "error"}),
    "graphs on other devices": ("kernels.cuda_graph.impl", "local", {MS: "warning", MS_OLD: "warning", MF: "warning"}),
    "graphs of experts": ("kernels.cuda_graph.scope", ("moe",), {LM_12: "error"}),
    "a share of the samples": ("data.sharding", True, {MF: "error"}),
    "all samples": ("data.sharding", False, {SWIFT_36: "error"}),
    "stay": ("checkpoint.save_retain_interval", 5, {LM_12: "warning", SWIFT: "warning", MF: "warning", MS: "warning"}),
    "convert": ("checkpoint.convert.format", "torch", {SWIFT: "error", MF: "error", MF_OLD: "error", MS_OLD: "error"}),
    "convert to zarr": ("checkpoint.convert.format", "zarr", {LM: "error"}),
    "FSDP's format before FSDP": (
        "checkpoint.format",
        "fsdp_dtensor",
        {LM_12: "error", MS: "error", MS_OLD: "error", SWIFT_3: "error", SWIFT: "error", MF: "error"},
    ),
    "pages": ("offload.pin_cpu_grads", False, {SWIFT: "warning", MS_OLD: "warning"}),
    "old layout": ("checkpoint.save_pre_mcore_014", True, {LM: "warning", MS: "warning", MF: "warning"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_backend_cannot_express_is_reported(name: str) -> None:
    path, value, verdicts = REFUSED[name]
    for where, severity in verdicts.items():
        _, refused = written(job_of(**{path.replace(".", "__"): value}), where)
        assert refused.get(path) == severity, where


def test_a_worker_is_not_left_out_where_saving_needs_it() -> None:
    _, refused = written(job_of(checkpoint__async_save=True, checkpoint__persistent_worker=False), LM)
    assert refused["checkpoint.persistent_worker"] == "error"


# Old spellings: what they are read as; nothing is left over.
OLD: dict[str, tuple[tuple[str, str], dict[str, Any], dict[str, Any]]] = {
    "graphs of Megatron's": (LM, {"enable-cuda-graph": True}, {"kernels.cuda_graph.impl": "local"}),
    "graphs of TE's": (LM, {"external-cuda-graph": True}, {"kernels.cuda_graph.impl": "transformer_engine"}),
    "whole layers": (LM, {"cuda-graph-scope": ["full"]}, {"kernels.cuda_graph.scope": ()}),
    "whole layers in 0.12": (LM_12, {"cuda-graph-scope": "full"}, {"kernels.cuda_graph.scope": ()}),
    "format of checkpoints": (LM, {"use-dist-ckpt": True, "dist-ckpt-format": "zarr"}, {"checkpoint.format": None}),
    "format, MindSpeed": (MS, {"use-dist-ckpt": True}, {"checkpoint.format": None}),
    "parallel saving": (LM_12, {"ckpt-fully-parallel-save": True}, {"checkpoint.parallel_save": None}),
    "flash attention": (LM, {"use-flash-attn": True}, {"kernels.attention_backend": None}),
    "flash attention, swift": (SWIFT_36, {"use_flash_attn": True}, {"kernels.attention_backend": None}),
    "weights of old layout": (LM, {"dist-ckpt-save-pre-mcore-014": True}, {"checkpoint.save_pre_mcore_014": None}),
    "shards without a strategy": (
        LM_12,
        {"use-custom-fsdp": True, "use-distributed-optimizer": True},
        {"parallel.zero_stage": 0, "parallel.fsdp.implementation": "megatron"},
    ),
    "shards of swift's": (SWIFT, {"use_megatron_fsdp": True}, {"parallel.zero_stage": 3}),
}


@pytest.mark.parametrize("case", OLD.values(), ids=OLD)
def test_old_spellings_are_read_into_the_field_that_means_them(case: tuple[Any, ...]) -> None:
    where, given, wanted = case
    back = read_back(given, get_backend(where[0]), where[1])
    assert {path: value_at(back.job, path) for path in wanted} == wanted
    assert not set(given) & {each.flag for each in back.unmapped}


def test_contradicting_spellings_are_left_as_they_are() -> None:
    """Megatron-LM refuses them: no field may hide that."""
    for given in (
        {"enable-cuda-graph": True, "external-cuda-graph": True},
        {"use-custom-fsdp": True, "use-torch-fsdp2": True},
        {"use-flash-attn": True, "use-legacy-models": True},
    ):
        back = read_back(given, get_backend("megatron_lm"), "0.12.1")
        assert set(given) - {"use-legacy-models"} <= {each.flag for each in back.unmapped}


@pytest.mark.parametrize(("where", "connections"), [(LM, "8"), (MS, "8"), (SWIFT, "32")], ids=str)
def test_sharded_weights_get_several_connections(where: tuple[str, str], connections: str) -> None:
    """All three refuse 1, which jobs have otherwise, with FSDP."""
    from launcher.mapping.environment import environment
    from launcher.mapping.native import NativeArg, NativeArgs

    job = job_of(parallel__zero_stage=3)
    given, _ = written(job, where)
    args = tuple(NativeArg(flag=flag, value=value) for flag, value in given.items())
    native = NativeArgs(backend=where[0], version=where[1], args=args)
    found = environment(get_backend(where[0]).environment, job, native)
    assert found["CUDA_DEVICE_MAX_CONNECTIONS"] == connections


def test_the_format_of_checkpoints_follows_from_sharded_weights() -> None:
    """Megatron-core's FSDP writes fsdp_dtensor, everything else torch_dist; a job may say so."""
    for stage, fitting, other in ((3, "fsdp_dtensor", "torch_dist"), (None, "torch_dist", "fsdp_dtensor")):
        _, refused = written(job_of(parallel__zero_stage=stage, checkpoint__format=fitting), SWIFT)
        assert "checkpoint.format" not in refused
        _, refused = written(job_of(parallel__zero_stage=stage, checkpoint__format=other), SWIFT)
        assert refused["checkpoint.format"] == "error"


def test_sharded_weights_are_estimated_as_such() -> None:
    """FSDP without a stage is stage 3."""
    from launcher.estimate.sizes import read_sizes

    def stage(**values: Any) -> int:
        return read_sizes(job_of(cluster__devices_per_node=8, **values))[0].zero

    assert stage(parallel__fsdp__implementation="torch") == 3
    assert stage(parallel__fsdp__implementation="megatron", parallel__zero_stage=2) == 2
    assert stage(parallel__distributed_optimizer=True) == 1


@pytest.mark.parametrize("where", [SWIFT_3, SWIFT_36], ids=str)
def test_megatron_swift_3_starts_collectives_before_megatron_would(where: tuple[str, str]) -> None:
    """So --distributed_backend says nothing there (swift/megatron/argument/train_args.py:20 @3.12.6)."""
    found = read_back({"distributed_backend": "gloo"}, get_backend(where[0]), where[1])
    assert found.job.parallel.communication.backend is None
    assert not found.unmapped
