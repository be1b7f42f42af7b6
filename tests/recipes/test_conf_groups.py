"""Every option of every group composes, fills its own section only, and hardware figures say where they come from."""

import tomllib
from pathlib import Path

import pytest

from launcher.compose import compose
from launcher.compose.search_path import SECTION_GROUPS
from launcher.job import as_tree
from launcher.job.shipped import shipped

OPTIONS = [(group, path.stem) for group in SECTION_GROUPS for path in sorted((shipped("conf") / group).glob("*.yaml"))]


@pytest.mark.sample(keep=25)
@pytest.mark.parametrize("group, option", OPTIONS, ids=lambda value: value)
def test_an_option_fills_its_own_section_only(group: str, option: str) -> None:
    plain, chosen = as_tree(compose([])), as_tree(compose([f"{group}={option}"]))
    changed = {section for section in chosen if chosen[section] != plain[section]}
    assert changed <= {group, "name"}


def test_there_is_a_backend_option_for_every_backend_of_the_package() -> None:
    root = Path(__file__).resolve().parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = set(project["entry-points"]["launch.backends"])
    assert {option for group, option in OPTIONS if group == "backend"} == names
    assert all(compose([f"backend={name}"]).backend.name == name for name in names)


HARDWARE = [option for group, option in OPTIONS if group == "hardware"]
FIGURES = ("memory_gib", "bf16_tflops", "fp8_tflops", "memory_bandwidth_gbs", "intra_node_gbs", "inter_node_gbs")


def test_the_promised_hardware_is_there() -> None:
    nvidia = {"a100_80g", "a100_80g_pcie", "h20", "h100_80g", "h200", "h800", "b200", "b300", "gb200", "gb300"}
    assert nvidia | {"mi300x", "mi325x", "mi355x", "ascend_910b", "ascend_910c", "cpu"} <= set(HARDWARE)


# (peak of BF16 : FP8 : MXFP8 : NVFP4, dense): figures with sparsity would break these.
RATIOS = {
    "h20": (2, None, None),
    "h800": (2, None, None),
    "b200": (2, 2, 4),
    "b300": (2, 2, 13125 / 2250),
    "gb200": (2, 2, 4),
    "gb300": (2, 2, 6),
    "mi300x": (2, None, None),
    "mi325x": (2, None, None),
    "mi355x": (2, 2, None),
    "ascend_910c": (None, None, None),
}


@pytest.mark.parametrize(("option", "ratios"), RATIOS.items(), ids=list(RATIOS))
def test_peaks_of_smaller_formats_are_multiples_of_bf16(
    option: str, ratios: tuple[float | None, float | None, float | None]
) -> None:
    hardware = compose([f"hardware={option}"]).hardware
    for peak, ratio in zip((hardware.fp8_tflops, hardware.mxfp8_tflops, hardware.nvfp4_tflops), ratios, strict=True):
        assert hardware.bf16_tflops is not None
        assert peak == (None if ratio is None else pytest.approx(ratio * hardware.bf16_tflops, rel=1e-4))


@pytest.mark.parametrize("option", HARDWARE)
def test_hardware_figures_are_positive_or_left_empty_and_have_a_source(option: str) -> None:
    hardware = compose([f"hardware={option}"]).hardware
    assert hardware.name
    assert hardware.source, f"conf/hardware/{option}.yaml: source says where each figure is from"
    assert all(value is None or value > 0 for value in (getattr(hardware, figure) for figure in FIGURES))
    assert hardware.device == ("cpu" if option == "cpu" else "npu" if option.startswith("ascend") else "cuda")


TASKS = {"pretrain", "sft", "dpo", "simpo", "kto", "reward_model"}


@pytest.mark.parametrize("task", sorted(TASKS))
def test_a_task_option_is_the_task_of_its_name(task: str) -> None:
    assert compose([f"task={task}"]).task.type == task
