"""Imports a job from an argument list (with or without the program), for services with thousands of calls a minute."""

from collections.abc import Mapping, Sequence

from launcher.importing.imported import Imported
from launcher.importing.invocation import ExcludedCommand, Invocation, recognise
from launcher.importing.notes import refuse
from launcher.importing.read_command import ImportOptions, read_command
from launcher.importing.shell.state import Command


def read_argv(
    argv: Sequence[str],
    *,
    backend: str,
    version: str | None = None,
    env: Mapping[str, str] | None = None,
    world_size: int | None = None,
    partial: bool = False,
) -> Imported:
    """Return the job of an argument list; see `launcher.api.import_argv`.

    Raises:
        ImportRefused: no training command of this backend, or an invalid argument.
    """
    arguments = tuple(str(arg) for arg in argv)
    options = ImportOptions(backend=backend, version=version, world_size=world_size, partial=partial)
    invocation = Invocation(program="", backends=(backend,), argv=arguments, env=env or {})
    if arguments and not arguments[0].startswith("-"):
        found = recognise(Command(words=arguments, env=env or {}, where=""), assume=backend)
        if isinstance(found, ExcludedCommand):
            raise refuse(f"{found.program}: {found.why}")
        invocation = found or invocation
    return read_command(invocation, options)
