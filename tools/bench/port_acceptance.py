"""Ports examples of the corpus to other backends, takes the decisions that are left, and asks the target's real parser.

    python -m tools.bench.port_acceptance --facts DIR --megatron-lm CHECKOUT [--every N] [--targets A,B] [--state FILE]
        [--write]

DIR and CHECKOUT are those of tools.bench.corpus, the latter of Megatron-LM's default version. MindSpeed-LLM is found by
MINDSPEED_LLM_PATH, MINDSPEED_PATH and MEGATRON_LM_PATH, interpreters in LAUNCH_TEST_ENVIRONMENTS. Decisions are taken
as in tools.bench.port_decisions, and the model too: the preset of the job's kind (Qwen3-8B; with experts Qwen3-30B-A3B,
or Qwen3-Next with linear attention) where the port needs one; then the first fix that a finding offers. What its own
backend refuses for the same reason is counted as refused, what else still has errors as open. The other command lines
are parsed and validated, up to the model's configuration, by Megatron-LM, MindSpeed-LLM or ms-swift itself; MindFormers
2.1 has no build of its MindSpore for CPUs, and is not asked. Goes on where it was stopped. Prints the table; with
--write it also goes where the pages of the documentation take it from.
"""

import argparse
import dataclasses
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.compose.presets import preset_named
from launcher.families.config_json import config_from_model
from launcher.families.fill import filled, model_of
from launcher.families.source import ModelConfigError
from launcher.importing.imported import Imported
from launcher.importing.port import ported
from launcher.job import Job, Origin, Value
from launcher.job.derive import with_values
from launcher.job.finding import Fix
from launcher.mapping.backend import backend_names
from launcher.mapping.environment import environment
from launcher.pipeline import Outcome, judge
from launcher.port.dropped import values_of
from tests.rehearse.native import environments
from tools.bench.port_decisions import KINDS, kind_of, sources_of, taken
from tools.resumable import ROOT, commit, digest, load, save, state_file

PAGE = Path(__file__).resolve().parents[1] / "docs" / "import_accepted.md"
STATE = state_file("port_acceptance")
ROUNDS = 6
DENSE, EXPERTS, LINEAR = "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-Next-80B-A3B-Instruct"
# What a user says who has none of it in the file.
ANSWERS: Mapping[str, Value] = {
    "batch.seq_length": 4096,
    "batch.global_batch_size": 512,
    "optimizer.lr": 1e-5,
    "backend.args.seed": 1234,
}
REFUSED, OPEN, ACCEPTED = "refused", "open", "accepted"


def settled(imported: Imported, target: str) -> tuple[str, Outcome | None]:
    """Return a port with every decision taken; where that is not possible, what it is refused for or what is open."""
    accepted: list[str] = []
    errors: list[Any] = []
    written = imported
    for turn in range(ROUNDS):
        port = ported(imported, target, accepted=accepted, fixes=turn > 1)
        errors = [finding for finding in port.findings if finding.severity == "error"]
        cannot = next((name for name, holds in KINDS.items() if any(holds(each) for each in errors)), "")
        if cannot:
            return f"{REFUSED}: {cannot}", None
        if not errors:
            return "", judge(port.job, fixes=False)
        kinds = {kind_of(error): error for error in errors}
        values = {path: value for kind in kinds for path, value in taken(kind, port.job, target).items()}
        values |= {path: value for error in errors for path, value in ANSWERS.items() if path in error.fields}
        for error in errors if turn else ():  # what the message offers
            values |= next((found for fix in error.fixes if (found := _offered(fix))), {})
        accepted += [flag for each in errors if each.rule == "PORT-LEFT-OUT" for flag in each.flags]
        job = _with_overrides(imported.job, values)
        if "model" in kinds:
            job = _with_named_model(job)
        imported = dataclasses.replace(imported, job=job)
    own = {each.rule for each in judge(written.job, fixes=False).findings if each.severity == "error"}
    if all(error.rule in own for error in errors):
        return f"{REFUSED}: by its own backend", None
    return f"{OPEN}: {', '.join(dict.fromkeys(kind_of(error) for error in errors))}", None


def _offered(fix: Fix) -> dict[str, Value]:
    """Return what a fix sets; nothing where the user has to fill it in."""
    passed = [each.partition("=") for each in fix.overrides if each.startswith(("backend.args.", "backend.env."))]
    fields = [each for each in fix.overrides if not each.startswith(("backend.args.", "backend.env."))]
    known = values_of(" ".join(fields)) if fields else {}
    if known is None:
        return {}
    return known | {path: None if text == "null" else text for path, _, text in passed}


def _with_overrides(job: Job, values: Mapping[str, Value]) -> Job:
    """Return the job with other values; an argument or a variable of None is left out, as on the command line."""
    if not values:
        return job
    changed = with_values(job, values, Origin(kind="override"))
    args = {name: value for name, value in changed.backend.args.items() if value is not None}
    env = {name: value for name, value in changed.backend.env.items() if value is not None}
    return dataclasses.replace(changed, backend=dataclasses.replace(changed.backend, args=args, env=env))


def _with_named_model(job: Job) -> Job:
    experts = LINEAR if job.model.experimental_attention_variant == "gated_delta_net" else EXPERTS
    preset = preset_named(experts if job.model.is_moe or job.parallel.ep > 1 else DENSE)
    assert preset is not None
    own = ("num_hidden_layers",) if job.model.num_hidden_layers else ()
    named = filled(job, model_of(preset.fields), preset.name, own)
    tokenizer = dataclasses.replace(type(job.tokenizer)(), path=None)
    return dataclasses.replace(
        named, model=dataclasses.replace(named.model, hub_id=preset.fields["hub_id"], path=None), tokenizer=tokenizer
    )


# -- the real parsers


def cases_of(target: str, found: Iterable[tuple[str, Outcome]], folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what the target's child process reads for each port, with folders in place of open ones."""
    for number, (name, outcome) in enumerate(found):
        job, native = outcome.job, outcome.native
        home = folder / f"{number}" / (job.model.hub_id or (EXPERTS if job.model.is_moe else DENSE)).rsplit("/", 1)[-1]
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.json").write_text(_config(job))
        argv = [_placed(each, home) for each in outcome.backend.argv(native)]
        if target != "mindspeed" or "--enable-hf2mg-convert" in argv:
            # MindSpeed-LLM converts whatever safetensors --load has: the folder stands for a converted checkpoint, too.
            (home / "model.safetensors").touch()
        case = {
            "name": name,
            "argv": argv,
            "world_size": job.cluster.world_size,
            "local_world_size": job.cluster.devices_per_node,
            "env": environment(outcome.backend.environment, job, native),
        }
        if target == "megatron":
            command = outcome.plan().nodes[0].argv
            case["command"] = next(word for word in command if word in ("pt", "sft", "rlhf"))
            for flag in ("--model", "--mcore_model", "--mcore_ref_model"):
                if flag in argv:
                    argv[argv.index(flag) + 1] = str(home)
            argv += ["--check_model", "false"]
        yield case


def _config(job: Job) -> str:
    """Return the model's config.json; where the job does not determine one, of a known model with as many layers."""
    if job.model.model_type is not None:
        try:
            return json.dumps(config_from_model(job.model))
        except ModelConfigError:
            pass
    preset = preset_named(EXPERTS if job.model.is_moe else DENSE)
    assert preset is not None
    known = model_of({**preset.fields, "num_hidden_layers": job.model.num_hidden_layers or 36})
    return json.dumps(config_from_model(known))


def _placed(text: str, home: Path) -> str:
    """Return an argument with a folder that exists for a path that the user fills in, or has on another machine."""
    if text.startswith(("your_", "${", "$", "/", "<")) or "your " in text:
        return str(home)
    return text


def answers(target: str, cases: Sequence[Mapping[str, Any]], checkout: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each case and what the target's own parser and validation say against it."""
    python, args = _child(target, checkout)
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "USE_TF": "FALSE",
    }
    one = target == "megatron"
    done = subprocess.run(
        [str(python), *args],
        input=json.dumps(list(cases)) if one else "\n".join(json.dumps(case) for case in cases),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=variables,
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    if one:
        for line in map(json.loads, done.stdout.splitlines()):
            yield line["name"], line["error"] or ""
    else:
        found = json.loads(done.stdout.splitlines()[-1])
        yield from ((case["name"], answer) for case, answer in zip(cases, found, strict=True))


def _child(target: str, checkout: Path) -> tuple[Path, list[str]]:
    tests = ROOT / "tests" / "backends"
    if target == "megatron":
        return environments.swift_python(), ["-m", "tests.backends.megatron.real_parser"]
    if target == "mindspeed":
        return environments.mindspeed_python(), [str(tests / "mindspeed" / "parser_child.py")]
    return environments.swift_python(), [str(tests / "megatron_lm" / "parser_child.py"), str(checkout)]


def verdicts(target: str, ports: Iterable[tuple[str, Imported]], checkout: Path) -> dict[str, str]:
    """Return by name what became of each port: refused, open, accepted, or what the target says against it."""
    found: dict[str, str] = {}
    asked: list[tuple[str, Outcome]] = []
    for name, imported in ports:
        found[name], outcome = settled(imported, target)
        if outcome is not None:
            asked.append((name, outcome))
    if asked:
        with tempfile.TemporaryDirectory(prefix="ports-") as folder:
            for name, answer in answers(target, list(cases_of(target, asked, Path(folder))), checkout):
                found[name] = answer.replace(folder, "DIR") or ACCEPTED
    return found


# -- the table


def main() -> int:
    """Measure and print the table; return the exit code."""
    options = _options()
    sources = digest()
    known = load(options.state, sources, str)
    for backend, read in sources_of(options).items():
        examples = [each for each in read() if each.imported is not None]
        for target in options.targets.split(","):
            if target == backend:
                continue
            keys = {
                f"{backend} {target} {number} {each.path}": each
                for number, each in enumerate(examples[:: options.every])
            }
            pending = [
                (key, each.imported) for key, each in keys.items() if key not in known and each.imported is not None
            ]
            for start in range(0, len(pending), options.batch):
                known |= verdicts(target, pending[start : start + options.batch], options.megatron_lm)
                save(options.state, sources, known)
    text = table(known)
    print(text)
    if options.write:
        PAGE.write_text(text + "\n", encoding="utf-8")
    for key, verdict in known.items():
        if verdict != ACCEPTED and not verdict.startswith((REFUSED, OPEN)):
            print(f"not accepted  {key}: {verdict[:300]}", file=sys.stderr)
    return 0


def table(known: Mapping[str, str]) -> str:
    """Return the figures as a table, with their sum and where they were measured."""
    rows: dict[tuple[str, str], list[str]] = {}
    for key, verdict in known.items():
        source, target, *_ = key.split(" ")
        rows.setdefault((source, target), []).append(verdict)
    lines = [
        "| from | to | ports | refused: what cannot be had | open after every decision | asked | accepted |",
        "|---|---|---|---|---|---|---|",
    ]
    for (source, target), found in rows.items():
        refused = Counter(each.partition(": ")[2] for each in found if each.startswith(REFUSED))
        left = Counter(each.partition(": ")[2] for each in found if each.startswith(OPEN))
        asked = len(found) - refused.total() - left.total()
        accepted = found.count(ACCEPTED)
        share = f"{accepted} ({accepted / asked:.0%})" if asked else "–"
        lines.append(f"| {source} | {target} | {len(found)} | {_shown(refused)} | {_shown(left)} | {asked} | {share} |")
    open_ = sum(verdict.startswith(OPEN) for verdict in known.values())
    asked = len(known) - open_ - sum(verdict.startswith(REFUSED) for verdict in known.values())
    accepted = sum(verdict == ACCEPTED for verdict in known.values())
    today = datetime.datetime.now(datetime.UTC).date()
    return "\n".join([*lines, "", f"{accepted} of {asked} are accepted, {open_} are open ({today} at {commit()})."])


def _shown(counts: Counter[str]) -> str:
    return "; ".join(f"{count} {name}" for name, count in counts.most_common()) or "0"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=Path, required=True, metavar="DIR", help="folder with corpus_*.jsonl")
    parser.add_argument("--megatron-lm", type=Path, required=True, metavar="CHECKOUT")
    targets = [name for name in backend_names() if name != "mindformers"]
    parser.add_argument("--targets", default=",".join(targets), metavar="A,B")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth example only")
    parser.add_argument("--batch", type=int, default=25, metavar="N", help="command lines of one child process")
    parser.add_argument("--state", type=Path, default=STATE, metavar="FILE")
    parser.add_argument("--write", action="store_true", help="write tools/docs/import_accepted.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
