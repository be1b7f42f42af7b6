"""A module that is imported when it is first used is, from then on, the one that everybody has."""

import subprocess
import sys

CODE = """
import sys
from launcher.cli.late_module import import_late

import_late("{name}")
import {name}, importlib.util
assert importlib.import_module("{name}") is {name} and importlib.util.find_spec("{name}").origin == {name}.__file__
assert "{loaded}" not in sys.modules
{use}
import_late("{name}")
assert sys.modules["{name}"] is {name} and "{attribute}" in vars({name}) and type({name}) is type(sys)
try:
    {name}.no_such_name
except AttributeError as error:
    print(error)
"""
USES = (
    "from inspect import signature; assert str(signature(lambda a: a)) == '(a)'",
    "assert str(inspect.signature(lambda a: a)) == '(a)'",
    "import dataclasses; dataclasses.make_dataclass('Of', ['a']); assert inspect.isclass(int)",
    "from inspect import *; assert isclass(int)",
    "assert 'isclass' in dir(inspect)",
    "assert not hasattr(inspect, '__path__')",
    "inspect.getargspec = inspect.getfullargspec; from inspect import getargspec",
)


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_a_module_is_imported_at_its_first_use():
    for use in USES:
        code = CODE.format(name="inspect", attribute="signature", loaded="ast", use=use)
        assert run(code) == "module 'inspect' has no attribute 'no_such_name'\n"


def test_threads_that_use_it_first_at_once_get_the_same_module():
    code = """
import sys, threading
from launcher.cli.late_module import import_late
import_late("inspect")
import inspect
start, found = threading.Barrier(8), []
def use():
    start.wait()
    found.append(inspect.signature)
threads = [threading.Thread(target=use) for _ in range(8)]
[each.start() for each in threads]
[each.join() for each in threads]
print(len(found), len(set(found)))
"""
    assert run(code) == "8 1\n"


def test_a_module_that_is_there_stays():
    assert (
        run(
            "import inspect, sys; from launcher.cli.late_module import import_late; before = inspect; "
            "import_late('inspect'); print(sys.modules['inspect'] is before)"
        )
        == "True\n"
    )


def test_help_needs_no_signatures():
    code = "import sys; sys.argv[1:] = ['--help']; from launcher.cli import main; main(); print('ast' in sys.modules)"
    assert run(code).splitlines()[-1] == "False"
