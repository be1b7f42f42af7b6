"""Judges every command line and file of the corpus as it is written: none that upstream runs may have an error.

    python -m tools.bench.corpus_check --facts DIR

DIR holds corpus_*.jsonl, as for tools.bench.corpus. Prints, for each backend, how many have no error, and every one
that has: with the reason why upstream cannot run it either, or as false. Exit code 1 if one is false.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from launcher.importing.judge import judge_existing
from tools.bench.corpus import CORPORA, outcomes

_TYPO = "upstream's own parser refuses it: the argument does not exist"
_MISSPELT = f"{_TYPO.partition(':')[0]}: no such choice of --model-type-hf (qwen3-moe-moe)"
_BLANK_WORD = (
    "a blank after the backslash ends the command: bash hands on a blank word, which upstream's own parser refuses"
)
_OF_2021 = (
    "upstream's own parser refuses it: --DDP-impl was removed in 23.06; and its CONFIG.sh is not bash until its blanks "
    "are filled in"
)
_CONVERT = (
    "upstream's own validator refuses it: --enable-hf2mg-convert with torch_dist, which is the default of --ckpt-format"
)
_UNREAD = (
    "MindSpeed reads transformer_impl before Megatron's defaults exist; the script does not write it "
    "(context_parallel_feature.py:115, reset_attention_mask_feature.py:55)"
)
_SEED = "the seed's document refuses it (26.1), the version does nothing with it: rules.strict=upstream accepts it"
# Part of the path: why the example cannot run as it is.
BROKEN = {
    "qwen3_next/qwen3_next_megatron.sh": f"{_TYPO} (--export_model_parallel_size)",
    "tests/poc/qwen3_235b_": _CONVERT,
    "qwen3-14b/pretrain_qwen3_14b_ms.sh": f"{_TYPO.partition(':')[0]}: --load has no value",
    "pretrain_deepseek3_75.9b_128k_fp8_A5_ptd.sh": f"{_TYPO.partition(':')[0]}: a stray \\s, which is no argument",
    "pretrain_deepseek3_671b_4k_512die_A2_ptd.sh": f"{_TYPO} any more (--moe-zerc and others are of 2.1.0)",
    "tune_qwen3_30b_a3b_256K_full_pack_A3_ptd.sh": _MISSPELT,
    "tune_qwen3_30b_a3b_32K_full_pack_A": _MISSPELT,
    "pretrain_qwen3_30b_a3b_32K_A2_ptd.sh": f"{_TYPO} (--num-layers-per-virtual-pipeline-stag)",
    "pretrain_qwen3_235b_a22b_4k_A3_ptd.sh": _BLANK_WORD,
    "examples/academic_paper_scripts/sc21/": _OF_2021,
    "pretrain_internlm25_1point8b_32k_ms.sh": _UNREAD,
    "tune_llama2_7b_full_pack_32k_ms.sh": _UNREAD,
    "mamba2/mamba2_8b_tp4_pp1_cp2_recompute_4k_ptd.sh": _SEED,
    "qwen3-next/qwen3_next_80b_4K_A3_ptd.sh": _SEED,
    "ling_v2/tune_ring_1T_32k_ptd_A3.sh": "upstream's own validator refuses it: --neat-pack without "
    "--reset-attention-mask (training_basic.py:55)",
    "pretrain_qwen3_235b_a22b_8K_A2_ptd.sh": "upstream's own validator refuses it: --moe-tp-extend-ep with the "
    "alltoall dispatcher and --moe-alltoall-overlap-comm (alltoall_feature)",
    "test_grace_exit_save_ckpt.yaml": "its test builds another model in Python; with 4 heads on 8 key/value heads this "
    "model would repeat them 0 times (llama_transformer.py:147)",
    "test_utils/test_tensorboard/test_tensorboard.yaml": "its test builds the optimizer in Python; "
    "FP32StateAdamWeightDecay is no class of these versions",
    "mindspore/pretrain_deepseek3_671b.yaml": "this version's TopkBiasBalanceCallback takes no num_layers and no "
    "mtp_depth",
    "telechat3_moe/pretrain_telechat3_105b_a4b_4k.yaml": "45 layers on 8 stages with offset 0: MindFormers refuses it",
    "layers62_micro960_dp4_tp8_pp16_vp1_ep32.yaml": "offset and recompute have rows for 2 chunks, pp_interleave_num is "
    "1: MindFormers refuses it",
}
# Rules of what upstream runs: why it is refused all the same. rules.strict=upstream lowers each to a warning.
WRONG = {
    "MS-DPO-TP": "it runs, and trains with wrong gradients (measured: docs/parity.md)",
    "MF-PACK-SHIFT": "it runs, and trains each token on the second one after it (measured: docs/parity.md)",
    "MS-CONVERT-FAMILY": "a script of MindSpeed-LLM master, which converts this family's weights at the start: 26.1.0 "
    "refuses it there (initialize.py:245); backend.version=master accepts it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A record with errors; `why` it cannot run upstream either, empty where we are wrong."""

    path: str
    rules: tuple[str, ...]
    why: str


def judged(facts: Path) -> Iterator[tuple[str, int, list[Refused]]]:
    """Yield backend, number of records that could be read, and those with errors."""
    for name, (backend, versions) in CORPORA.items():
        read = [each for each in outcomes(facts / name, backend, versions) if each.imported is not None]
        refused = []
        for each in read:
            assert each.imported is not None
            errors = {finding.rule for finding in judge_existing(each.imported).findings if finding.severity == "error"}
            if errors:
                why = next((why for part, why in BROKEN.items() if part in each.path), "")
                if not why and errors <= WRONG.keys():
                    why = "; ".join(WRONG[rule] for rule in sorted(errors))
                refused.append(Refused(path=each.path, rules=tuple(sorted(errors)), why=why))
        yield backend, len(read), refused


def markdown(facts: Path) -> tuple[str, int]:
    """Return the table with every record that has errors, and how many of them are false."""
    lines = ["| backend | records | without an error | argued | false |", "|---|---|---|---|---|"]
    broken: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    false = 0
    for backend, count, refused in judged(facts):
        wrong = [each for each in refused if not each.why]
        false += len(wrong)
        argued = len(refused) - len(wrong)
        lines.append(f"| {backend} | {count} | {count - len(refused)} | {argued} | {len(wrong)} |")
        for each in refused:
            broken.setdefault((each.why or "FALSE", each.rules), []).append(each.path)
    lines += ["", "| why | rules | examples |", "|---|---|---|"]
    for (why, rules), paths in broken.items():
        shown = "<br>".join(f"`{path}`" for path in paths)
        lines.append(f"| {why} | {', '.join(f'`{rule}`' for rule in rules)} | {shown} |")
    return "\n".join(lines), false


def main() -> int:
    """Print the table; return 1 if an error is false."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=Path, required=True, metavar="DIR", help="folder with corpus_*.jsonl")
    text, false = markdown(parser.parse_args().facts)
    print(text)
    return 1 if false else 0


if __name__ == "__main__":
    sys.exit(main())
