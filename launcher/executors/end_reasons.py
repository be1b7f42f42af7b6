"""Why a run waits or ended, as `status.json` says it: written by this program and by the scripts that it renders.

Texts with `%s` are formats of Python's `%` and of bash's printf.
"""

from collections.abc import Mapping

STARTER_KILLED = "the program that started it was killed"
SUPERVISOR_KILLED = "the script that starts its nodes was killed"
TERMINAL_LOST = "its terminal was closed (SIGHUP)"
# A signal without a request to stop comes from the queue, or from outside the launcher.
PREEMPTED = "preempted: %s"
BY_SIGTERM = "ended by SIGTERM"
# What kind of iteration did not come (new, first), seconds.
NO_ITERATION = "no %s iteration for %s s"
HUNG = "hung: %s"
# Time in UTC, number of the restart, of how many, exit code.
RESTART_WAITS = "waits until %s before restart %s of %s (exit code %s)"

# Names of these in the rendered scripts.
RENDERED: Mapping[str, str] = {
    "starter_killed": STARTER_KILLED,
    "terminal_lost": TERMINAL_LOST,
    "preempted": PREEMPTED,
    "by_sigterm": BY_SIGTERM,
    "no_iteration": NO_ITERATION,
    "hung_reason": HUNG,
    "restart_waits": RESTART_WAITS,
}
