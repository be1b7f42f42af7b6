"""Checks of a run that no backend performs: addresses, paths, adapters, resuming, profiling, sizes."""

from collections.abc import Iterator

from launcher.job import value_at
from launcher.job.hardware import linked_devices
from launcher.job.rehearse import SWITCHES
from launcher.job.shipped import hardware_for
from launcher.rules.known_names import MEGATRON_NAMES
from launcher.rules.registry import RuleContext, Violation, rule
from launcher.syntax import is_host
from launcher.terminal import with_verb

_LOCAL = ("/tmp", "/var/tmp", "/dev/shm", "/run", "${TMPDIR}", "$TMPDIR")
_LAST_PORT = 65535
_MOST_HARDWARE = 3
_LATENT = ("linear_q_down_proj", "linear_q_up_proj", "linear_kv_down_proj", "linear_kv_up_proj", "linear_q_proj")


@rule("SENSE-PORT", source="RFC 6335: ports are 16 bits", reads="job.cluster.master_port")
def port_exists(context: RuleContext) -> Iterator[Violation]:
    """A port is a 16-bit number."""
    port = context.job.cluster.master_port
    if port is not None and port > _LAST_PORT:
        yield Violation(message=f"cluster.master_port {port} is above {_LAST_PORT}", fields=("cluster.master_port",))


@rule(
    "SENSE-ADDRESS", source="torchrun --master-addr: a host, without scheme and port", reads="job.cluster.master_addr"
)
def address_is_a_host(context: RuleContext) -> Iterator[Violation]:
    """The address of node 0 is a name or a number, without scheme and port."""
    address = context.job.cluster.master_addr
    if address is None or is_host(address):
        return
    yield Violation(
        message=f"cluster.master_addr {address!r} is not a host: the port goes into cluster.master_port",
        fields=("cluster.master_addr",),
    )


def _is_local(path: str) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in _LOCAL)


@rule(
    "SENSE-LOCAL-PATH",
    source="several nodes read and write one checkpoint together",
    reads="job.cluster.nodes job.checkpoint.save job.checkpoint.load job.model.path job.data.cache_path",
    severity="warning",
)
def paths_are_shared(context: RuleContext) -> Iterator[Violation]:
    """With several nodes, checkpoints and data must be on a file system that all nodes share."""
    job = context.job
    if job.cluster.nodes < 2:
        return
    paths = {
        "checkpoint.save": job.checkpoint.save,
        "checkpoint.load": job.checkpoint.load,
        "model.path": job.model.path,
        "data.cache_path": job.data.cache_path,
    }
    for path, place in paths.items():
        if place is not None and _is_local(place):
            yield Violation(
                message=f"{path} {place} is on a node-local disk: {job.cluster.nodes} nodes would not share it",
                fields=(path, "cluster.nodes"),
            )


@rule(
    "SENSE-LORA-TARGETS",
    source="Megatron-core module names (lora.target_modules)",
    reads="job.lora.rank job.lora.target_modules job.model.is_mla job.model.hidden_size",
    severity="warning",
)
def adapters_have_layers(context: RuleContext) -> Iterator[Violation]:
    """Adapters are attached to layers by their Megatron-core names; other names match nothing."""
    lora, model = context.job.lora, context.job.model
    if lora.rank is None:
        return
    for name in lora.target_modules:
        if name in MEGATRON_NAMES:
            yield Violation(
                message=f"lora.target_modules {name} is a Hugging Face name: in Megatron-core it is "
                f"{MEGATRON_NAMES[name]}",
                fields=("lora.target_modules",),
            )
    wrong = [name for name in lora.target_modules if name in _LATENT and not model.is_mla]
    if model.is_mla and "linear_qkv" in lora.target_modules:
        wrong.append("linear_qkv")
    if wrong and model.hidden_size is not None:
        exist, has = with_verb(wrong, "does", "do"), "has" if model.is_mla else "has no"
        yield Violation(
            message=f"lora.target_modules {exist} not exist: the model {has} multi-head latent attention",
            fields=("lora.target_modules",),
        )


@rule(
    "SENSE-RESUME",
    source="Megatron-LM checkpointing.py: finetune loads weights only",
    reads="job.checkpoint.finetune job.checkpoint.load job.checkpoint.no_load_optim",
    severity="warning",
)
def resuming_is_consistent(context: RuleContext) -> Iterator[Violation]:
    """Fine-tuning starts a new run from weights, resuming continues a run: options of one contradict the other."""
    checkpoint = context.job.checkpoint
    if checkpoint.finetune and checkpoint.load is not None and checkpoint.no_load_optim is False:
        yield Violation(
            message="checkpoint.finetune=true loads weights only, checkpoint.no_load_optim=false has no effect",
            fields=("checkpoint.finetune", "checkpoint.no_load_optim"),
        )
    if checkpoint.finetune is False and checkpoint.load is None:
        yield Violation(
            message="checkpoint.finetune=false resumes, but checkpoint.load names no checkpoint",
            fields=("checkpoint.load", "checkpoint.finetune"),
        )


@rule(
    "SENSE-SAVE-OPTIM",
    source="Megatron-LM checkpointing.py",
    reads="job.fault_tolerance.max_restarts job.checkpoint.save job.checkpoint.no_save_optim",
    severity="warning",
)
def restarts_find_a_checkpoint(context: RuleContext) -> Iterator[Violation]:
    """A restart resumes from the last checkpoint; without one, or without its optimizer, training starts over."""
    job = context.job
    if job.fault_tolerance.max_restarts and (job.checkpoint.save is None or job.checkpoint.no_save_optim):
        yield Violation(
            message="fault_tolerance.max_restarts needs checkpoints with optimizer states to resume from",
            fields=("fault_tolerance.max_restarts", "checkpoint.save", "checkpoint.no_save_optim"),
        )


@rule(
    "SENSE-SHARD-ALONE",
    source="Rajbhandari et al. 2020, ZeRO: states are shared over dp ranks",
    reads="job.parallel.distributed_optimizer job.parallel.dp job.parallel.cp",
    severity="warning",
)
def optimizer_has_ranks(context: RuleContext) -> Iterator[Violation]:
    """With one data-parallel rank there are no other ranks over which to shard optimizer states."""
    parallel = context.job.parallel
    # A recipe's switch is meant for the cluster that it was written for, not for every smaller one.
    typed = context.job.origin("parallel.distributed_optimizer").kind == "override"
    if typed and parallel.distributed_optimizer and parallel.dp == 1 and parallel.cp == 1:
        yield Violation(
            message="distributed_optimizer has no effect with dp 1: there are no other ranks to shard over",
            fields=("parallel.distributed_optimizer",),
        )


@rule(
    "SENSE-TP-NODES",
    source="Narayanan et al. 2021: tensor parallelism within a node",
    reads="job.parallel.tp job.cluster.devices_per_node job.cluster.nodes job.hardware.node_devices "
    "job.hardware.domain_devices job.hardware.domain_used_devices",
    severity="warning",
)
def tensor_parallelism_stays_in_a_node(context: RuleContext) -> Iterator[Violation]:
    """Tensor parallelism communicates in every layer; between nodes it mostly waits for the network.

    Not in an NVLink or HCCS domain that spans nodes (hardware.domain_devices).
    """
    job = context.job
    tp, devices = job.parallel.tp, job.cluster.devices_per_node
    if tp <= devices or job.cluster.nodes == 1:
        return
    if tp > linked_devices(job.hardware, devices, job.cluster.world_size):
        yield Violation(
            message=f"tp {tp} spans nodes of {devices} devices: every layer communicates over the network",
            fields=("parallel.tp", "cluster.devices_per_node"),
        )


@rule(
    "SENSE-NODE-DEVICES",
    source="data sheet of the hardware",
    reads="job.cluster.devices_per_node job.cluster.nodes job.hardware.node_devices job.hardware.name job.runtime",
    severity="warning",
)
def a_node_has_the_devices(context: RuleContext) -> Iterator[Violation]:
    """A job that asks for more devices than a node has waits in a queue for ever, or does not start."""
    job = context.job
    there, asked = job.hardware.node_devices, job.cluster.devices_per_node
    if there is None or asked <= there or job.runtime == "rehearsal":
        return
    nodes, rest = divmod(job.cluster.nodes * asked, there)
    yield Violation(
        message=f"cluster.devices_per_node {asked}: a node of {job.hardware.name} has {there}"
        + ("" if rest else f" (cluster.devices_per_node={there} cluster.nodes={nodes}: as many devices in all)")
        + f"; hardware.node_devices={asked} if yours have more",
        fields=("cluster.devices_per_node", "hardware.node_devices"),
    )


@rule(
    "SENSE-RC-BLOCK",
    source="Megatron-core transformer_block.py: block counts layers of a chunk",
    reads="job.model.num_hidden_layers job.recompute.granularity job.recompute.method job.recompute.num_layers "
    "job.parallel.vpp job.recompute.per_pp_rank job.parallel.layout job.parallel.pp",
    severity="warning",
)
def block_recompute_is_partial(context: RuleContext) -> Iterator[Violation]:
    """Block recompute counts layers per chunk: at or above the size of a chunk, everything is recomputed."""
    job = context.job
    recompute, layers = job.recompute, job.model.num_hidden_layers
    if recompute.granularity != "full" or recompute.method != "block" or recompute.num_layers is None:
        return
    vpp = job.parallel.vpp or 1
    if layers is None or vpp == 1 or recompute.per_pp_rank or job.parallel.layout is not None:
        return
    chunk = layers // (job.parallel.pp * vpp)
    if recompute.num_layers > chunk >= 1:
        yield Violation(
            message=f"recompute.num_layers {recompute.num_layers} is above the {chunk} layers of a chunk "
            f"(vpp {vpp}): all layers are recomputed",
            fields=("recompute.num_layers", "parallel.vpp"),
        )


@rule(
    "SENSE-PROFILER",
    source="arithmetic",
    reads="job.schedule.train_iters job.profiler.enabled job.profiler.start_step job.profiler.end_step "
    "job.profiler.ranks job.cluster.world_size",
    severity="warning",
)
def profile_is_written(context: RuleContext) -> Iterator[Violation]:
    """A profile needs at least one step, within training, on ranks that exist."""
    job = context.job
    profiler, end = job.profiler, job.schedule.train_iters
    if not profiler.enabled:
        return
    start, stop = profiler.start_step, profiler.end_step
    if start is not None and stop is not None and start >= stop:
        yield Violation(
            message=f"profiler.start_step {start} must be below profiler.end_step {stop}",
            fields=("profiler.start_step", "profiler.end_step"),
        )
    if start is not None and end is not None and start >= end:
        yield Violation(
            message=f"profiler.start_step {start} must be below schedule.train_iters {end}",
            fields=("profiler.start_step",),
        )
    away = [rank for rank in profiler.ranks if rank >= job.cluster.world_size]
    if away:
        yield Violation(
            message=f"profiler.ranks {', '.join(map(str, away))} do not exist: the world size is "
            f"{job.cluster.world_size}",
            fields=("profiler.ranks",),
        )


@rule(
    "SENSE-DEVICE",
    source="what the backend runs on",
    reads="job.hardware.name job.runtime job.hardware.device job.cluster.devices_per_node",
    severity="warning",
)
def backend_runs_on_the_device(context: RuleContext) -> Iterator[Violation]:
    """A backend runs on the devices that it is written for; other devices run only rehearsals."""
    job = context.job
    if context.backend is None or job.hardware.name is None or job.runtime == "rehearsal":
        return
    from launcher.mapping.backend import get_backend

    backend = get_backend(context.backend)
    if job.hardware.device not in backend.devices and job.hardware.device != "cpu":
        names = hardware_for(backend.devices, job.cluster.devices_per_node)
        yield Violation(
            message=f"{backend.title} runs on {', '.join(backend.devices)}, but {job.hardware.name} is "
            f"{job.hardware.device}: another hardware= or backend= (launch list hardware, launch list backends)",
            fields=("hardware.device", "backend.name"),
            works=tuple(f"hardware={name}" for name in names[:_MOST_HARDWARE]),
        )


@rule(
    "REHEARSE-LEFT-OUT",
    source="launch",
    reads="job.rehearse.leave_out job.runtime " + " ".join(f"job.{name}" for name in SWITCHES),
    severity="change",
)
def rehearsal_leaves_out(context: RuleContext) -> Iterator[Violation]:
    """A rehearsal computes in another number format than the job where `rehearse.leave_out` names the job's."""
    job = context.job
    if job.runtime == "native":
        return
    for name in job.rehearse.leave_out:
        value = value_at(job, name)
        if value not in (None, False):
            yield Violation(
                message=f"{name}={value} is left out of the rehearsal: {SWITCHES[name].instead}, and nothing of it is "
                "tested",
                fields=("rehearse.leave_out", name),
            )
