"""Runs the trainer in tests: one process imports megatron-core once and forks the ranks of every run."""

import dataclasses
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from launcher.rehearse.core.options import DataOptions, FakeWorld, LoraOptions, PreferenceOptions, TrainerOptions
from tests.waiting import STUCK_SECONDS


def split_args(text: str) -> list[str]:
    """Split a command line without quotes into its words."""
    return text.split()


LIMIT_S = 600.0
"""Seconds after which the ranks of a run are killed: a bound for hanging, far above what any run takes."""
_COMMON = split_args(
    "--num-layers 4 --hidden-size 32 --ffn-hidden-size 64 --num-attention-heads 4 --seq-length 32 "
    "--max-position-embeddings 32 --swiglu --normalization RMSNorm --qk-layernorm --position-embedding-type rope "
    "--disable-bias-linear --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0 "
    "--micro-batch-size 2 --global-batch-size 8 --train-iters 6 --lr 3e-3 --min-lr 3e-4 --lr-decay-style cosine "
    "--lr-warmup-iters 2 --log-interval 1 --make-vocab-size-divisible-by 16"
)
DENSE = [*_COMMON, *split_args("--group-query-attention --num-query-groups 2 --kv-channels 8")]
MLA = [
    *_COMMON,
    *split_args("--multi-latent-attention --q-lora-rank 16 --kv-lora-rank 16 --qk-head-dim 8 --qk-pos-emb-head-dim 8"),
    *split_args("--v-head-dim 8 --rope-type rope"),
]
MOE = split_args(
    "--num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 32 --moe-aux-loss-coeff 1e-2 "
    "--moe-router-load-balancing-type aux_loss --moe-token-dispatcher-type alltoall --moe-router-dtype fp32"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run left behind."""

    exit_codes: list[int]
    output: str
    result: dict[str, Any] | None
    output_dir: Path

    @property
    def summary(self) -> dict[str, Any]:
        """The result of a run that went well; fails with its output otherwise."""
        assert self.exit_codes == [0] * len(self.exit_codes), self.output
        assert self.result is not None
        return self.result

    @property
    def losses(self) -> list[float]:
        """The losses of a run that went well."""
        losses: list[float] = self.summary["losses"]
        return losses


class Zygote:
    """A process that has imported megatron-core, and forks ranks on demand."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait(timeout=STUCK_SECONDS)

    def run(
        self,
        argv: Sequence[str],
        *,
        ranks: int = 1,
        data: DataOptions | None = None,
        fake_world: FakeWorld | None = None,
        output_dir: Path | None = None,
        lora: LoraOptions | None = None,
        preference: PreferenceOptions | None = None,
    ) -> Run:
        """Run the trainer with `ranks` ranks and wait for it."""
        output_dir = output_dir or self.folder / f"run{self.count}"
        options = TrainerOptions(
            output_dir=str(output_dir),
            data=data or DataOptions(kind="preferences" if preference else "sample"),
            fake_world=fake_world,
            lora=lora,
            preference=preference,
        )
        file = self.folder / f"run{self.count}.json"
        file.write_text(options.to_json())
        split_args = ["--options", str(file), "--", *argv]
        exit_codes, log = self.call("launcher.rehearse.core.__main__:main", split_args, ranks=ranks)
        result = output_dir / "result.json"
        return Run(
            exit_codes=exit_codes,
            output=log,
            result=json.loads(result.read_text()) if result.exists() else None,
            output_dir=output_dir,
        )

    def call(
        self, function: str, split_args: Sequence[str], *, ranks: int, limit_s: float = LIMIT_S
    ) -> tuple[list[int], str]:
        """Call `module:function` on every rank with `split_args` as command line; return exit codes and output.

        After `limit_s` the ranks that are left are killed: exit code -9.
        """
        self.count += 1
        log = self.folder / f"log{self.count}"
        request = {"function": function, "words": split_args, "ranks": ranks, "log": str(log), "limit_s": limit_s}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline()), log.read_text()


def serve() -> None:
    """Answer requests on standard input until it closes (runs in the zygote)."""
    from launcher.rehearse.core import environment

    environment.import_megatron()
    for heavy in ("matplotlib.figure", "torch._dynamo", "torch.utils.tensorboard", "launcher.rehearse.core.trainer"):
        importlib.import_module(heavy)
    gc.collect()
    gc.freeze()  # else every rank's collections walk through, and so copy, what was imported here

    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(_fork_ranks(request)), flush=True)


def _fork_ranks(request: Mapping[str, Any]) -> list[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    children = []
    for rank in range(request["ranks"]):
        child = os.fork()
        if child == 0:
            _be_rank(request, rank, port)
        children.append(child)
    return _ended(children, request["limit_s"])


def _ended(children: Sequence[int], limit_s: float) -> list[int]:
    """Wait for processes and return their exit codes; kill those that are left after `limit_s`."""
    deadline, codes = time.monotonic() + limit_s, dict[int, int]()
    while len(codes) < len(children):
        for child in children:
            if child not in codes:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    codes[child] = os.waitstatus_to_exitcode(status)
                elif time.monotonic() > deadline:
                    os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    return [codes[child] for child in children]


def _be_rank(request: Mapping[str, Any], rank: int, port: int) -> None:
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(request["ranks"]),
        LOCAL_WORLD_SIZE=str(request["ranks"]),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.argv = ["launcher.rehearse.core", *request["words"]]
    code = 1
    try:
        module, function = request["function"].split(":")
        code = getattr(importlib.import_module(module), function)()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
