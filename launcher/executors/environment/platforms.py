"""Environment variables by which platforms describe the nodes of a job: a table, most specific platform first."""

from collections.abc import Mapping

from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """The variables of one platform.

    Attributes:
        title: display name.
        nodes, rank: number of nodes, and rank of this node from 0; both must be set to recognise the platform.
        devices: processes or devices per node; "": not provided.
        master, port: address and port of node 0; "": not provided.
        job: job id, equal across restarts; "": not provided.
        also: variables that must be set too, to distinguish platforms with the same names.
        hosts: list of all hosts, separated by commas, node 0 first; or Slurm's compressed list.
        source: documentation of the variables.
    """

    title: str
    nodes: str
    rank: str
    devices: str = ""
    master: str = ""
    port: str = ""
    hosts: str = ""
    job: str = ""
    also: tuple[str, ...] = ()
    source: str


PLATFORMS = (
    Platform(
        title="TrainJob or PyTorchJob (PET_*)",
        nodes="PET_NNODES",
        rank="PET_NODE_RANK",
        devices="PET_NPROC_PER_NODE",
        master="PET_MASTER_ADDR",
        port="PET_MASTER_PORT",
        source="Kubeflow Trainer v2 pkg/constants (TorchEnv…); training-operator 1.7 controller.v1/pytorch/envvar.go",
    ),
    # A second set of variables (VC_TASK_INDEX, VC_WORKER_NUM) numbers workers from 0 without the master.
    Platform(
        title="Volcano with its plug-in pytorch",
        nodes="WORLD_SIZE",
        rank="RANK",
        master="MASTER_ADDR",
        port="MASTER_PORT",
        also=("VC_TASK_INDEX", "MASTER_ADDR"),
        source="Volcano pkg/controllers/job/plugins/distributed-framework/pytorch/pytorch.go",
    ),
    Platform(
        title="ModelArts",
        nodes="MA_NUM_HOSTS",
        rank="VC_TASK_INDEX",
        devices="MA_NUM_GPUS",
        hosts="VC_WORKER_HOSTS",
        source="support.huaweicloud.com/usermanual-standard-modelarts/develop-modelarts-0104.html, table 2",
    ),
    Platform(
        title="Volcano",
        nodes="VC_WORKER_NUM",
        rank="VC_TASK_INDEX",
        hosts="VC_WORKER_HOSTS",
        source="Volcano pkg/controllers/job/plugins/{env,svc} (VC_TASK_INDEX, VC_%s_NUM, VC_%s_HOSTS), task worker",
    ),
    Platform(
        title="Volcengine ML platform",
        nodes="MLP_WORKER_NUM",
        rank="MLP_ROLE_INDEX",
        devices="MLP_WORKER_GPU",
        master="MLP_WORKER_0_HOST",
        port="MLP_WORKER_0_PORT",
        job="MLP_TASK_ID",
        source="volcengine.com/docs/6459/75329",
    ),
    Platform(
        title="Slurm",
        nodes="SLURM_NNODES",
        rank="SLURM_NODEID",
        hosts="SLURM_JOB_NODELIST",
        job="SLURM_JOB_ID",
        source="Slurm srun(1), OUTPUT ENVIRONMENT VARIABLES",
    ),
    Platform(
        title="NNODES and NODE_RANK",
        nodes="NNODES",
        rank="NODE_RANK",
        devices="NPROC_PER_NODE",
        master="MASTER_ADDR",
        port="MASTER_PORT",
        source="the options of torchrun as variables, as scripts of Megatron-LM and ms-swift name them",
    ),
    Platform(
        title="PAI, Baige or PyTorchJob (RANK and WORLD_SIZE of nodes)",
        nodes="WORLD_SIZE",
        rank="RANK",
        devices="NPROC_PER_NODE",
        master="MASTER_ADDR",
        port="MASTER_PORT",
        source="alibabacloud.com/help/en/pai/general-environment-variables; cloud.baidu.com/doc/AIHC/s/mm346i20k; "
        "training-operator before 1.7 pkg/controller.v1/pytorch/envvar.go",
    ),
)


def recognised(environ: Mapping[str, str]) -> Platform | None:
    """Return the platform whose variables are set; None if there is none."""
    return next(
        (each for each in PLATFORMS if all(environ.get(name) for name in (each.nodes, each.rank, *each.also))), None
    )
