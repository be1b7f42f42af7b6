"""A training on the machines, and what tests read of it: losses, and the processes of its ranks."""

import re
from pathlib import Path

from tests.cluster.machines import Site

JOB = (
    "+recipe=tiny_qwen3",
    "backend=megatron_lm",
    "runtime=rehearsal",
    "schedule.train_iters=12",
    "schedule.lr_warmup_iters=2",
    "checkpoint.save_interval=4",
    "batch.global_batch_size=12",
    "batch.micro_batch_size=1",
    "batch.seq_length=64",
)


def overrides(site: Site, executor: str, nodes: int, devices: int, folder: str) -> tuple[str, ...]:
    hosts = ",".join(f"n{number}" for number in range(1, nodes + 1))
    by = {
        "ssh": ("cluster=ssh", f"cluster.hosts=[{hosts}]", site.machines.ssh_options),
        "slurm": ("cluster=slurm",),
    }[executor]
    size = (f"cluster.nodes={nodes}", f"cluster.devices_per_node={devices}", f"output_dir={folder}")
    return (*JOB, *by, *size)


def losses(site: Site, folder: str) -> dict[int, str]:
    """Return the loss of each iteration as printed; of one that was done twice, the last."""
    found: dict[int, str] = {}
    for log in sorted((site.folder / folder / "logs").glob("node*.log")):
        for line in log.read_text().splitlines():
            match = re.search(r"iteration +(\d+)/12 \| loss ([\d.]+)", line)
            if match:
                found[int(match[1])] = match[2]
    return found


def rank_processes(site: Site, node: str) -> list[int]:
    """Return the ranks on a machine: children of torchrun that run the trainer."""
    found = []
    for pid, line in site.machines.processes(node):
        if "launcher.rehearse.core" in line and "torchrun" not in line and "LOCAL_RANK" in environ_of(pid):
            found.append(pid)
    return found


def environ_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""
