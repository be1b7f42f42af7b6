"""Taylor's own search space, its expert rules and its memory fit give its own answers.

Figures: mindspore/toolkits e8d3573 autoparallel/symphony, test/units/nd_search_unit_test.py and
config/pretrain_deepseek3_671b.yaml (1,024 ranks, global batch 1,024, 55 GB), which are those of its README's example.
"""

from collections.abc import Iterable

import pytest

from launcher.api import compose
from launcher.balance.profile import fit
from launcher.cli import main
from launcher.search.taylor import Setting, prune, setting_of, space

pytestmark = pytest.mark.slow

EXAMPLE = Setting(world=1024, layers=62, experts=256, global_batch=1024)
# dp, tp, pp, ep, peak MB: 40 dry runs.
MEASURED = (
    *((32, 2, 16, 8, 142786), (128, 2, 4, 8, 188944), (16, 2, 32, 4, 153480), (16, 8, 8, 8, 96950)),
    *((64, 8, 2, 8, 825586), (64, 2, 8, 4, 221281), (8, 4, 32, 8, 81943), (64, 4, 4, 4, 283005)),
    *((64, 1, 16, 8, 241679), (32, 8, 4, 4, 270048), (8, 4, 32, 4, 98967), (256, 2, 2, 4, 1656206)),
    *((64, 4, 4, 8, 162045), (8, 8, 16, 8, 68632), (4, 8, 32, 8, 54686), (128, 1, 8, 4, 299846)),
    *((8, 8, 16, 4, 101784), (32, 8, 4, 8, 148595), (256, 1, 4, 4, 363705), (32, 4, 8, 8, 116591)),
    *((4, 8, 32, 4, 71710), (32, 4, 8, 4, 181999), (32, 2, 16, 4, 175938), (16, 2, 32, 8, 136456)),
    *((64, 8, 2, 4, 1635569), (64, 2, 8, 8, 155874), (128, 1, 8, 8, 234458), (16, 4, 16, 8, 93350)),
    *((256, 2, 2, 8, 847944), (128, 4, 2, 8, 832465), (16, 8, 8, 4, 162358), (32, 1, 32, 8, 245502)),
    *((512, 1, 2, 8, 927251), (64, 1, 16, 4, 274811), (16, 4, 16, 4, 126502), (128, 2, 4, 4, 309904)),
    *((32, 1, 32, 4, 262506), (256, 1, 4, 8, 242746), (128, 4, 2, 4, 1642448), (512, 1, 2, 4, 1687161)),
)
SURVIVORS = (
    *((4, 8, 32, 8, 54686), (4, 8, 32, 16, 46174), (4, 8, 32, 32, 41918), (8, 8, 16, 16, 52056)),
    *((8, 8, 16, 32, 43768), (8, 8, 16, 64, 39624), (16, 8, 8, 32, 47894), (16, 8, 8, 64, 39718)),
    *((32, 8, 4, 64, 42323.6), (64, 4, 4, 64, 56205)),
)


def test_the_published_example_has_its_published_size() -> None:
    kept = prune(EXAMPLE)
    assert kept.raw == 576_030
    assert len(kept.points) == 8_753
    assert len(kept.layouts) == 20
    assert kept.raw - sum(kept.rejected.values()) == len(kept.points)


def test_the_recipe_is_the_published_example() -> None:
    args = ["+recipe=deepseek_v3", "cluster.nodes=128", "batch.global_batch_size=1024"]
    assert setting_of(compose(args)) == EXAMPLE


def test_without_its_quirks_experts_limit_ep_and_every_stage_has_a_chunk() -> None:
    small = Setting(world=16, layers=8, experts=4, global_batch=16)
    assert max(point.ep for point in space(small)) == 16
    assert min(point.vp for point in space(small)) == 0
    sound = Setting(world=16, layers=8, experts=4, global_batch=16, quirks=False)
    assert max(point.ep for point in space(sound)) == 4
    assert min(point.vp for point in space(sound)) == 1


def grey_box(
    measured: Iterable[tuple[int, int, int, int, float]], *, limit: float, max_ep: int = 64
) -> list[tuple[int, int, int, int, float]]:
    """Return the layouts within `limit`, by a fit of measured peaks over ep: dp, tp, pp, ep, peak.

    Args:
        measured: dp, tp, pp, ep, peak; two sizes of ep for each dp, tp, pp. Any unit.
        limit: in the same unit.
        max_ep: largest ep that is tried, powers of two up to it.
    """
    peaks: dict[tuple[int, int, int], dict[int, float]] = {}
    for dp, tp, pp, ep, peak in measured:
        peaks.setdefault((dp, tp, pp), {})[ep] = peak
    found = []
    for (dp, tp, pp), by_ep in peaks.items():
        if len(by_ep) < 2:
            continue
        (ep1, peak1), (ep2, peak2) = sorted(by_ep.items())[:2]
        curve = fit(ep1, peak1, ep2, peak2)
        for ep in (2**n for n in range(max_ep.bit_length())):
            if (dp * tp) % ep == 0 and curve.at(ep) <= limit:
                found.append((dp, tp, pp, ep, curve.at(ep)))
    return sorted(found)


def test_forty_measured_peaks_give_ten_layouts() -> None:
    found = grey_box(MEASURED, limit=55 * 1024)
    assert [row[:4] for row in found] == [row[:4] for row in SURVIVORS]
    assert [row[4] for row in found] == pytest.approx([row[4] for row in SURVIVORS], abs=0.5)


def test_the_fit_goes_through_any_two_sizes() -> None:
    """The original is right only where the second size is twice the first."""
    curve = fit(4, 1000.0 + 8000.0 / 4, 32, 1000.0 + 8000.0 / 32)
    assert curve.at(16) == pytest.approx(1500.0)
    with pytest.raises(ValueError, match="both peaks are of ep 8"):
        fit(8, 1.0, 8, 2.0)


def test_the_search_can_be_held_to_taylors_space(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["+recipe=deepseek_v3", "backend=mindformers", "hardware=ascend_910b", "cluster.nodes=128"]
    more = ["batch.global_batch_size=1024", "search.max_vpp=1", "search.max_micro_batch_size=1"]
    assert main(["search", *args, *more, "--space", "taylor", "--top", "3"]) == 0
    captured = capsys.readouterr().out
    assert "576,030 configurations, 8,753 after its rules" in captured
    assert "20 of dp, tp, cp, pp" in captured
