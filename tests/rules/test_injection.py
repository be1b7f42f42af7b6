"""What no quoting can carry is refused before anything starts, with what would work where that is computable."""

from typing import Any

import pytest

from launcher.cli import main
from launcher.executors.ssh.syntax import is_ssh_host
from launcher.pipeline import judge
from launcher.syntax import is_host, is_variable
from tests.conftest import Launch, make_job

SLURM = {"executor": "slurm"}
SSH = {"executor": "ssh"}
# name: changes of a small job; the rule and field of its error ("": none); the fixes that are offered.
CASES: dict[str, tuple[dict[str, Any], str, str, list[str]]] = {
    "a line end in an option": (
        {"cluster": {**SLURM, "sbatch_options": ["--comment=x\ntouch x"]}},
        "TEXT-CHARACTERS",
        "cluster.sbatch_options",
        ["cluster.sbatch_options=[]"],
    ),
    "a line end in a partition": (
        {"cluster": {**SLURM, "partition": "x\ntouch y"}},
        "TEXT-CHARACTERS",
        "cluster.partition",
        ["cluster.partition=x"],
    ),
    "a line end after a time": (
        {"cluster": {**SLURM, "time_limit": "10\n"}},
        "TEXT-CHARACTERS",
        "cluster.time_limit",
        ["cluster.time_limit=10"],
    ),
    "a line of Unicode in a name": ({"name": "a\u2028b"}, "TEXT-CHARACTERS", "name", ["name=a"]),
    "NUL in a variable": ({"backend": {"env": {"A": "a\0"}}}, "TEXT-CHARACTERS", "backend.env", []),
    "lines of bash": ({"cluster": {**SLURM, "setup": ["if true; then\n\techo x\nfi"]}}, "", "", []),
    "a variable of several lines": ({"backend": {"env": {"A": "a\nb"}}}, "", "", []),
    "a variable with a dash": ({"backend": {"env": {"A-B": "1"}}}, "ENV-NAME", "backend.env.A-B", []),
    "a variable without a name": ({"backend": {"env": {"": "1"}}}, "ENV-NAME", "backend.env", []),
    "a function of bash": (
        {"backend": {"env": {"BASH_FUNC_x%%": "() { :; }"}}},
        "ENV-NAME",
        "backend.env.BASH_FUNC_x%%",
        [],
    ),
    "a number of bash": ({"backend": {"env": {"RANDOM": "1"}}}, "ENV-NAME", "backend.env.RANDOM", []),
    "a library": ({"backend": {"env": {"LD_PRELOAD": "/x.so", "_x1": "1"}}}, "", "", []),
    "an option among files": (
        {"data": {"format": "megatron", "paths": ["-x", "b"]}},
        "ARG-DASH",
        "data.paths",
        ["data.paths=[./-x,b]"],
    ),
    "one file that looks like an option": ({"data": {"format": "megatron", "paths": ["-x"]}}, "", "", []),
    "the end of options": (
        {"backend": {"args": {"wandb-exp-name": "--"}}},
        "ARG-DASH",
        "backend.args.wandb-exp-name",
        [],
    ),
    "a folder that is an option": ({"output_dir": "-x"}, "PATH-DASH", "output_dir", ["output_dir=./-x"]),
    "a Python that is an option": ({"cluster": {"python": "-c"}}, "PATH-DASH", "cluster.python", []),
    "a Python in two folders": ({"cluster": {"python": "/a:/b/python"}}, "PATH-DASH", "cluster.python", []),
    "a host that is an option": (
        {"cluster": {**SSH, "hosts": ["-oProxyCommand=touch"]}},
        "SSH-HOST",
        "cluster.hosts",
        [],
    ),
    "a host among the options of ssh": (
        {"cluster": {**SSH, "hosts": ["a"], "ssh_options": ["-p", "22", "evil"]}},
        "SSH-OPTION",
        "cluster.ssh_options",
        ["cluster.ssh_options=[]"],
    ),
    "options of ssh": (
        {"cluster": {**SSH, "hosts": ["me@a"], "ssh_options": ["-p2222", "-F", "x", "-4", "-o", "X=y"]}},
        "",
        "",
        [],
    ),
    "a command among the options of sbatch": (
        {"cluster": {**SLURM, "sbatch_options": ["touch"]}},
        "SBATCH-OPTION",
        "cluster.sbatch_options",
        ["cluster.sbatch_options=[]"],
    ),
    "name and value in one word": (
        {"cluster": {**SLURM, "sbatch_options": ["--switches 1"]}},
        "SBATCH-OPTION",
        "cluster.sbatch_options",
        ["cluster.sbatch_options=[--switches=1]"],
    ),
    "options of sbatch": (
        {"cluster": {**SLURM, "sbatch_options": ["-C", "x", "--switches=1", "--comment=a b", "-Hv", "--hold"]}},
        "",
        "",
        [],
    ),
    "an address that is an option": ({"cluster": {"master_addr": "-x"}}, "SENSE-ADDRESS", "cluster.master_addr", []),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_could_run_is_refused(case: tuple[dict[str, Any], str, str, list[str]]) -> None:
    changes, rule, field, works = case
    errors = [finding for finding in judge(make_job(changes)).findings if finding.severity == "error"]
    found = [(error.rule, path) for error in errors for path in error.fields if path != "checkpoint.save"]
    assert found == ([(rule, field)] if rule else [])
    offered = [str(fix) for error in errors for fix in error.fixes]
    assert not set(works) - set(offered), offered


MANDATORY = [case for case in CASES.values() if case[1] not in ("", "ARG-DASH", "SENSE-ADDRESS")]


@pytest.mark.parametrize("case", MANDATORY, ids=[case[2] + case[1] for case in MANDATORY])
def test_no_job_switches_them_off(case: tuple[dict[str, Any], str, str, list[str]]) -> None:
    changes, rule, _, _ = case
    findings = judge(make_job({**changes, "rules": {"disable": [rule]}}), fixes=False).findings
    assert rule in {finding.rule for finding in findings}
    assert any(finding.rule == "RULES-DISABLED" and "always applies" in finding.message for finding in findings)


def test_check_says_it_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["+recipe=qwen3_8b", "backend=megatron", "cluster=slurm", 'cluster.sbatch_options=["--x=1\ntouch x"]']
    assert main(["check", *args]) == 1
    captured = "".join(capsys.readouterr())
    assert "TEXT-CHARACTERS" in captured
    assert "\ntouch" not in captured, "nor does the message have a second line"
    assert main(["dry-run", *args, "--format", "submit"]) == 1
    assert capsys.readouterr().out == ""


HOSTS = {
    "node1": True,
    "node-1.site.": True,
    "10.0.0.1": True,
    "fe80::1%eth0": True,
    "${MASTER}": True,
    "$MASTER": True,
    "": False,
    "-x": False,
    "a b": False,
    "a:29500": False,
    "10.0.0.1:29500": False,
    "http://a": False,
    "$(hostname)": False,
    "::1%$(x)": False,
}


@pytest.mark.parametrize(("text", "fits"), HOSTS.items(), ids=HOSTS)
def test_a_host_is_a_name_an_address_or_a_variable(text: str, fits: bool) -> None:
    assert is_host(text) == fits


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("me@a", True),
        ("a", True),
        ("me@[::1]", True),
        ("-x@a", False),
        ("me@-a", False),
        ("a@b@c", False),
        ("a/b", False),
    ],
)
def test_a_destination_of_ssh_is_a_host_with_a_user(text: str, fits: bool) -> None:
    assert is_ssh_host(text) == fits


def test_every_other_variable_of_bash_can_be_set() -> None:
    """Those that bash would refuse, replace or evaluate are known; all others are preserved."""
    import subprocess

    names = subprocess.run(["bash", "-c", "compgen -v"], capture_output=True, text=True, check=True).stdout.split()
    given = {name: "x y" for name in names if is_variable(name)}
    lines = [f"export {name}='{value}'" for name, value in given.items()]
    text = "\n".join(["set -eu", *lines, "exec /usr/bin/env -0"])
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin"})
    seen = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if "=" in entry)
    assert given.items() <= seen.items()


@pytest.mark.parametrize(
    ("arg", "rule"),
    [
        ("cluster.hosts=['-x']", "SSH-HOST"),
        ("cluster.ssh_options=[evil]", "SSH-OPTION"),
        ("cluster.sbatch_options=[touch]", "SBATCH-OPTION"),
    ],
)
def test_options_of_another_executor_are_refused_too(launch: Launch, arg: str, rule: str) -> None:
    done = launch("check", "+recipe=tiny_qwen3", "backend=megatron_lm", "cluster=local", arg, "--json")
    found = {each["rule"]: each["severity"] for each in done.json["findings"]}
    assert (found[rule], found["CLUSTER-FIELD"]) == ("error", "warning")
