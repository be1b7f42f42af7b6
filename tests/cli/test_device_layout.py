"""The line that says what lies on which device follows the order of ranks that the backend really uses."""

import pytest

from tests.conftest import Launch

_STAGES = "stage 0 has 2 layers on devices 0–1"


@pytest.mark.parametrize(
    ("backend", "words", "consecutive"),
    [
        ("megatron_lm", (), True),
        ("megatron_lm", ("parallel.dp_outermost=true",), False),
        ("megatron_lm", ("backend.args.use_tp_pp_dp_mapping=true",), False),
        ("mindspeed", ("backend.args.use-tp-pp-dp-mapping=true",), False),
        ("megatron", ("parallel.dp_outermost=true",), True),
    ],
)
def test_stages_are_named_where_their_devices_are_consecutive(
    launch: Launch, backend: str, words: tuple[str, ...], consecutive: bool
) -> None:
    sizes = ("cluster.devices_per_node=4", "parallel.pp=2", "parallel.tp=1")
    done = launch("dry-run", "+recipe=tiny_qwen3", f"backend={backend}", *sizes, *words)
    line = next(line for line in done.out.splitlines() if line.startswith("layout: "))
    assert line.startswith("layout: 4 devices: pp 2 × dp 2")
    assert (_STAGES in line) is consecutive
