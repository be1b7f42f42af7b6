"""Entry point: `python -m launcher.rehearse.core [--ranks N] --options FILE.json -- MEGATRON_ARGUMENTS`.

With --ranks N it starts N ranks on this machine; without, it is one rank, alone or under torchrun.
Exit codes: 0 done, 1 refused or failed, 2 usage; 130 and 143 stopped by Ctrl-C and SIGTERM with a complete checkpoint.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from launcher.rehearse.core import environment
from launcher.rehearse.core.checks import Judged, check
from launcher.rehearse.core.errors import (
    EXIT_OK,
    EXIT_REFUSED,
    EXIT_SIGINT,
    EXIT_SIGTERM,
    RehearsalError,
    StageError,
    UsageError,
)
from launcher.rehearse.core.options import TrainerOptions


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, self.format_usage().strip())


def parse_own(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Split the command line into the arguments of this module and Megatron-LM's."""
    parser = _Parser(
        prog="python -m launcher.rehearse.core",
        usage="%(prog)s [--ranks N] --options FILE.json -- MEGATRON_ARGUMENTS",
        allow_abbrev=False,
    )
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--options", required=True)
    border = list(words).index("--") if "--" in words else len(words)
    own = parser.parse_args(list(words[:border]))
    if own.ranks < 1:
        raise UsageError(f"--ranks {own.ranks}: must be at least 1")
    return own, list(words[border + 1 :])


def run(words: Sequence[str]) -> int:
    """Run one rank, or start all of them, and return the exit code."""
    own, argv = parse_own(words)
    options = TrainerOptions.from_file(own.options)
    starts_ranks = own.ranks > 1 and options.fake_world is None
    world = options.fake_world.world_size if options.fake_world else environment.world_size()
    judged = check(argv, own.ranks if starts_ranks else world, options.device)
    if options.check_only:
        return EXIT_OK
    # A fake world forks its ranks, which CUDA forbids once it is started.
    environment.use_device(options.device or ("cpu" if options.fake_world is not None else None))
    if options.fake_world is not None:
        from launcher.rehearse.core import fake_world

        return fake_world.run(judged.settings, options, judged.ignored)
    check_directories(judged, options)
    if starts_ranks:
        from launcher.rehearse.core import ranks

        one_rank = ["--options", own.options, "--", *argv]
        return ranks.run(own.ranks, one_rank, lambda: reporting(one_rank))
    return train(judged, options)


def check_directories(judged: Judged, options: TrainerOptions) -> None:
    """Reject directories in which files would be overwritten, and missing checkpoints."""
    from launcher.rehearse.core import checkpoint
    from launcher.rehearse.core.report import check_output_directory

    checkpoint.check_save_directory(judged.settings)
    found = checkpoint.find(judged.settings)
    check_output_directory(Path(options.output_dir), continues=found is not None)


def train(judged: Judged, options: TrainerOptions) -> int:
    """Train as one rank of the world that the environment variables define."""
    from launcher.rehearse.core.trainer import Trainer

    environment.import_megatron()
    environment.start(judged.settings)
    interrupt = Trainer(judged.settings, options, judged.ignored).run()
    environment.stop()
    if interrupt.signal is None:
        return EXIT_OK
    return EXIT_SIGINT if interrupt.signal.name == "SIGINT" else EXIT_SIGTERM


def reporting(words: Sequence[str]) -> int:
    """Run, and report a rehearsal error once: on the first rank, or on the only one that failed."""
    try:
        return run(words)
    except StageError as error:
        _record(error)
        print(f"error: rank {environment.rank()}: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    except RehearsalError as error:
        _record(error)
        if environment.rank() == 0:
            for problem in error.problems:
                print(f"error: {problem}", file=sys.stderr, flush=True)
        return error.exit_code
    except KeyboardInterrupt:
        if environment.rank() == 0:
            print("stopped before the first step", file=sys.stderr, flush=True)
        return EXIT_SIGINT
    except Exception as error:
        if isinstance(error, RuntimeError) and _peer_left(error):
            return EXIT_REFUSED  # the rank that failed first has reported the error
        _record(error)
        raise


def _record(error: Exception) -> None:
    """Write an error where torch elastic, or the program that started this one, looks for it."""
    if os.environ.get("TORCHELASTIC_ERROR_FILE"):
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler

        get_error_handler().record_exception(error)


def _peer_left(error: RuntimeError) -> bool:
    return any(text in str(error) for text in ("Connection closed by peer", "Connection reset by peer"))


def main() -> int:
    """Run the command line of this process."""
    return reporting(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
