"""Verifies Launch on a machine with one NVIDIA GPU, without network; `tools/gpu/verify.sh` starts it.

    tools/gpu/verify.sh [--device cpu] [--only STEP …] [--seconds N] [--page]

It prints one table of measured figures. Exit code 0: nothing failed and nothing differs; 1: something does, or there is
no GPU; 2: usage. `--device cpu` runs the same steps with tiny models on the CPU, which says that the script works.
"""

import argparse
import datetime
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from launcher.runtime import has_device
from tools.gpu.device import Device, described
from tools.gpu.layouts import LAYOUTS
from tools.gpu.runs import Runner
from tools.gpu.steps import STEPS, Verification, rows_of
from tools.gpu.table import HEADING, Row, markdown, marked, passed, with_section

ROOT = Path(__file__).resolve().parents[2]
PAGE, SECTION = ROOT / "docs" / "parity.md", ROOT / "tools" / "parity" / "gpu.md"


def main(words: Sequence[str] | None = None) -> int:
    """Verify, print the table, and return the exit code."""
    options = _options(words)
    device = _device(options.device)
    if device.problem:
        print(
            f"tools/gpu/verify.sh: no NVIDIA GPU to verify on: {device.problem}; --device cpu runs the same steps here."
        )
        return 1
    print(f"{device.line}\n", flush=True)
    started = time.monotonic()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="launch-verify-"))
    folder.mkdir(parents=True, exist_ok=True)
    runner = Runner(folder=folder, deadline=started + options.seconds)
    shared = Verification(
        device=device, runner=runner, hardware=options.hardware or device.hardware, layouts=options.layouts
    )
    rows: list[Row] = []
    try:
        for name in options.only or STEPS:
            for row in rows_of(name, shared):
                rows.append(row)
                print(f"{time.monotonic() - started:5.0f} s  {row.check}: {row.what}: {row.status}", flush=True)
    finally:
        text = _text(device, rows, time.monotonic() - started)
        print(f"\n{text}")
        _write(options, device, rows, text)
        if passed(rows) and options.folder is None:
            shutil.rmtree(folder)
        else:
            print(f"logs: {folder}")
    return 0 if passed(rows) else 1


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/gpu/verify.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", action="append", choices=STEPS, help="this step only; can be repeated")
    parser.add_argument("--layouts", type=int, default=len(LAYOUTS), metavar="N", help="measure the first N layouts")
    parser.add_argument("--seconds", type=float, default=540, help="start nothing after so many (default: 540)")
    parser.add_argument("--hardware", metavar="NAME", help="file of conf/hardware for the estimates; default: by name")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write device and rows there, too")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="new folder for all outputs, kept")
    parser.add_argument("--page", action="store_true", help="write the table into docs/parity.md")
    options = parser.parse_args(words)
    if options.page and (options.only or options.device == "cpu"):
        parser.error("--page is for a run of all steps on a GPU")
    return options


def _device(kind: str) -> Device:
    """Describe the device; a machine without a GPU is told by its driver's files, before torch is started."""
    if kind == "cuda" and not has_device(("cuda",)):
        return Device(kind=kind, software={}, problem="the driver's files /dev/nvidia0 and /dev/nvidiactl are missing")
    return described(kind)


def _text(device: Device, rows: Sequence[Row], seconds: float) -> str:
    """Return device, date and table as they stand on the page."""
    today = datetime.datetime.now(tz=datetime.UTC).date()
    return f"{today}, {device.line}; {seconds:.0f} s.\n\n{markdown(rows)}\n"


def _write(options: argparse.Namespace, device: Device, rows: Sequence[Row], text: str) -> None:
    if options.json is not None:
        content = {"device": asdict(device), "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    if options.page:
        about = SECTION.read_text(encoding="utf-8").split("\n\n")[1]
        head, _, table = text.partition("\n\n")
        section = f"{HEADING}\n\n{about}\n\n`tools/gpu/verify.sh`, {head}\n\n{marked(table)}\n"
        SECTION.write_text(section, encoding="utf-8")
        PAGE.write_text(with_section(PAGE.read_text(encoding="utf-8"), section), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
