"""Load of the web planner: sessions at once, the latency of a change, and its memory over an hour's worth of changes.

`python -m tools.bench.ui_load`: starts `launch ui`, then (1) 50 sessions that each change the job every 10 seconds, as
people who type, and (2) as many changes as they make in an hour, as fast as the machine answers, with the memory of all
its processes. The processor's time of a change is that of all of them, and does not depend on what else runs.
No answer comes from memory: every change is a job that was not asked for before. Only the server started here is asked.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

JOBS = (
    ("+recipe=qwen3_moe", "backend=megatron", "hardware=h100_80g"),
    ("+recipe=deepseek_v3", "backend=mindspeed", "hardware=ascend_910c", "cluster.nodes=32"),
    ("+recipe=llama3_8b", "backend=megatron_lm", "hardware=h100_80g"),
    ("+recipe=qwen3_moe", "backend=mindformers", "hardware=ascend_910c"),
)
# What people change; every seventh job is refused, and its fixes are computed as well.
CHANGES = ("parallel.tp=2", "batch.micro_batch_size=2", "parallel.pp=4", "recompute.granularity=full", "parallel.pp=3")
_HOUR_S = 3600


@dataclass(slots=True)
class Measured:
    """Seconds of each answer, and failed requests."""

    seconds: list[float] = field(default_factory=list)
    failed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def text(self) -> str:
        ranked = sorted(self.seconds)
        at = {share: 1000 * ranked[min(len(ranked) - 1, int(share * len(ranked)))] for share in (0.5, 0.95, 0.99)}
        shown = ", ".join(f"p{100 * share:g} {value:.0f} ms" for share, value in at.items())
        return f"{len(ranked):,} answers, {self.failed} failed, mean {1000 * statistics.mean(ranked):.0f} ms, {shown}"


class Session:
    """One open page: a connection that stays, and the cookie."""

    def __init__(self, host: str, path: str) -> None:
        self.host, self.link = host, http.client.HTTPConnection(host, timeout=60)
        self.link.request("GET", path)
        answer = self.link.getresponse()
        answer.read()
        self.cookie = str(answer.getheader("Set-Cookie")).split(";")[0]
        self.callbacks = json.loads(self._sent("GET", "/_dash-dependencies"))

    def change(self, words: Sequence[str], measured: Measured) -> None:
        """Ask for the verdict on a job, and for the fixes if it has errors, as the page does."""
        begun = time.perf_counter()
        try:
            answer = json.loads(self._call("verdict.children", {"asked": list(words)}))["response"]
            took = time.perf_counter() - begun
            with measured.lock:
                measured.seconds.append(took)
            answered = answer["answered"]["data"]
            if answered["can_fix"]:
                self._call("findings.children@", {"answered": answered})
        except (OSError, KeyError, ValueError, http.client.HTTPException):
            self.link.close()
            with measured.lock:
                measured.failed += 1

    def _call(self, output: str, values: dict[str, object]) -> str:
        each = next(one for one in self.callbacks if one["output"].strip(".").startswith(output))
        names = each["output"].strip(".").split("...")
        outputs = [dict(zip(("id", "property"), name.rsplit(".", 1), strict=True)) for name in names]
        inputs = [{**part, "value": values.get(part["id"])} for part in each["inputs"]]
        body = {"output": each["output"], "outputs": outputs if each["output"].startswith("..") else outputs[0]}
        body |= {"inputs": inputs, "state": each["state"], "changedPropIds": [f"{inputs[0]['id']}.data"]}
        return self._sent("POST", "/_dash-update-component", json.dumps(body))

    def _sent(self, method: str, path: str, body: str | None = None) -> str:
        headers = {"Cookie": self.cookie, "Content-Type": "application/json", "Origin": f"http://{self.host}"}
        self.link.request(method, path, body, headers)
        answer = self.link.getresponse()
        text = answer.read().decode()
        if answer.status >= 300:
            raise OSError(f"{answer.status} {text[:200]}")
        return text


_NUMBER = itertools.count(1)


def jobs(chance: random.Random) -> Iterator[list[str]]:
    """Yield the jobs of one session, each a change of the one before and none twice in this run."""
    words = list(chance.choice(JOBS))
    while True:
        yield [*words, chance.choice(CHANGES), f"schedule.train_iters={100 + next(_NUMBER)}"]


def people(host: str, path: str, sessions: int, changes: int, think: float) -> Measured:
    """Return what sessions measured that each change a job every `think` seconds."""
    measured = Measured()

    def one(number: int) -> None:
        chance = random.Random(number)
        session, made = Session(host, path), jobs(chance)
        time.sleep(chance.uniform(0, think))
        for _ in range(changes):
            session.change(next(made), measured)
            time.sleep(chance.uniform(0.5, 1.5) * think)

    _together([threading.Thread(target=one, args=(number,)) for number in range(sessions)])
    return measured


def hour(host: str, path: str, requests: int, clients: int, root: int) -> list[tuple[int, float]]:
    """Return the memory in MiB of all processes after so many requests, as fast as they are answered."""
    measured, samples = Measured(), [(0, memory(root))]

    def one(number: int) -> None:
        session, made = Session(host, path), jobs(random.Random(-1 - number))
        for _ in range(requests // clients):
            session.change(next(made), measured)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    step = max(1, requests // 12)
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.5)
        if len(measured.seconds) >= samples[-1][0] + step:
            samples.append((len(measured.seconds), memory(root)))
    samples.append((len(measured.seconds), memory(root)))
    print(f"as fast as possible, {clients} clients: {measured.text()}")
    return samples


def _together(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def family(root: int) -> set[int]:
    """Return a process and its descendants."""
    parents = {}
    for each in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            parents[int(each)] = int(_stat(int(each))[1])
    found, grows = {root}, True
    while grows:
        more = {child for child, parent in parents.items() if parent in found} - found
        found, grows = found | more, bool(more)
    return found


def _stat(process: int) -> list[str]:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def memory(root: int) -> float:
    """Return the proportional memory of a process and its descendants in MiB: what is shared counts once."""
    total = 0
    for each in family(root):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def processor(root: int) -> float:
    """Return the seconds of processor that a process and its descendants used."""
    total = 0
    for each in family(root):
        with contextlib.suppress(OSError):
            total += sum(map(int, _stat(each)[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def _busy() -> str:
    return f"{os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores"


def main() -> None:
    """Start a planner, ask it, and print what was measured."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--sessions", type=int, default=50)
    made.add_argument("--changes", type=int, default=12, help="of each session")
    made.add_argument("--think", type=float, default=10.0, help="seconds between two changes of a session")
    made.add_argument("--requests", type=int, help="of the second part; default: an hour of the first; 0: none")
    options = made.parse_args()
    with tempfile.TemporaryDirectory(prefix="ui-load-") as folder:
        words = [sys.executable, "-m", "launcher", "ui", "--port", "0", "--no-browser", "--json"]
        root = Path(__file__).resolve().parent.parent.parent
        begun = time.perf_counter()
        with subprocess.Popen(
            words, cwd=folder, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(root)}
        ) as server:
            try:
                assert server.stdout is not None
                text = b"".join(iter(server.stdout.readline, b"}\n")) + b"}"
                print(f"start: {time.perf_counter() - begun:.1f} s")
                _measure(json.loads(text)["url"], server.pid, options)
            finally:
                server.terminate()


def _measure(url: str, pid: int, options: argparse.Namespace) -> None:
    host, path = url.removeprefix("http://").split("/", 1)
    first = Measured()
    begun = time.perf_counter()
    warm = Session(host, f"/{path}")
    for words in JOBS:
        warm.change(words, first)
    print(f"first answers: {time.perf_counter() - begun:.1f} s; memory {memory(pid):.0f} MiB; load {_busy()}")
    used = processor(pid)
    found = people(host, f"/{path}", options.sessions, options.changes, options.think)
    cost = 1000 * (processor(pid) - used) / len(found.seconds)
    print(f"{options.sessions} sessions, a change every {options.think:g} s: {found.text()}")
    print(f"processor: {cost:.0f} ms a change; memory {memory(pid):.0f} MiB; load {_busy()}")
    worth = int(options.sessions * _HOUR_S / options.think) if options.requests is None else options.requests
    if worth:
        for count, size in hour(host, f"/{path}", worth, 8, pid):
            print(f"  after {count:6,} changes: {size:.0f} MiB")


if __name__ == "__main__":
    main()
