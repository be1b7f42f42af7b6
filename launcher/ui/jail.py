"""What a worker process may reach: the files of this program and of Python, read only; no environment, no program.

The words of a session are checked before (`words.py`); this holds whatever passes them. A path outside of the program
does not exist here, whether it does on the server or not, so that no answer depends on it.
"""

import errno
import os
import pwd
import resource
import signal
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

# Variables that start-up of Python or the text encoding depends on; no name or address of the server.
_KEPT = ("LANG", "LC_ALL", "TZ", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
_MEMORY = 6 * 2**30
# Events (PEP 578) of what an answer never needs: other programs, the network, changes to files.
_NEVER = frozenset(
    {"os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "pty.spawn", "subprocess.Popen"}
    | {"os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown"}
    | {"os.chdir", "os.fchdir", "os.kill", "os.killpg", "os.setxattr", "os.getxattr", "os.listxattr", "os.utime"}
    | {"socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"}
    | {"ctypes.dlopen", "tempfile.mkstemp", "tempfile.mkdtemp", "webbrowser.open", "urllib.Request"}
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_READ = frozenset({"open", "os.listdir", "os.scandir", "glob.glob"})


class Jail:
    """The folders that a process may read.

    Args:
        folders: folders besides those of Python and this program, such as that of uploaded scripts.
    """

    def __init__(self, folders: Sequence[str] = ()) -> None:
        paths = sysconfig.get_paths()
        program = Path(__file__).resolve().parent.parent.parent
        # Beside a checkout's packages lie files that are not the program's; in site-packages all are.
        own = [program / name for name in ("launcher", "backends", "conf", "recipes")]
        roots = [*map(str, own), paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"], *folders]
        roots += [each for each in sys.path if each.endswith(("site-packages", "dist-packages", ".zip"))]
        self.roots = tuple(dict.fromkeys(f"{os.path.realpath(root)}/" for root in roots if root))
        self._within = False
        self._stat, self._lstat, self._access, self._readlink = os.stat, os.lstat, os.access, os.readlink

    def allows(self, path: object) -> bool:
        """Return whether a path, links resolved, lies in a folder that may be read."""
        if isinstance(path, int):
            return True  # an open file
        try:
            text = os.fsdecode(path)  # type: ignore[arg-type]
            self._within = True
            real = os.path.realpath(text)
        except (TypeError, ValueError, OSError):
            return False
        finally:
            self._within = False
        return any(f"{real}/".startswith(root) for root in self.roots) or real == os.devnull

    def enter(self) -> None:
        """Restrict this process, for good."""
        environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
        os.environ.clear()
        os.environ.update(environ, HOME="/nonexistent", USER="user", PATH="/nonexistent")
        sys.dont_write_bytecode = True
        sys.path[:] = [each for each in sys.path if each]
        pwd.getpwnam, pwd.getpwuid = _nobody, _nobody
        for name in ("stat", "lstat", "access", "readlink"):
            setattr(os, name, self._seeing(getattr(os, name), answer=name == "access"))
        sys.addaudithook(self._audit)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        # Enforced by the kernel: no file grows, and what is too large ends here instead of on the whole machine.
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))

    def _seeing(self, real: Callable[..., Any], *, answer: bool) -> Callable[..., Any]:
        def within_jail(path: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._within and not self.allows(path):
                if answer:
                    return False
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return real(path, *args, **kwargs)

        return within_jail

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _READ:
            path = "." if args[0] is None else args[0]
            writes = event == "open" and bool((args[2] or 0) & _WRITING) and not isinstance(path, int)
            if writes or not self.allows(path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        elif event in _NEVER or event.startswith("shutil."):
            raise PermissionError(errno.EPERM, f"{event} is not allowed in the planner")


def _nobody(*_: object) -> NoReturn:
    raise KeyError("no such account")
