"""What MindSpeed-LLM 2.2, 2.3 and 26.0 check, and do not check, otherwise than the versions before and after."""

from backends.mindspeed.rules.tables import MINDSPEED
from launcher.rules.registry import lower
from launcher.rules.table import declare, needs, never

_FIRST, _LAST = "2.2", "2.3.99"
_FB_2_2 = "MindSpeed 2.2.0 features_manager/moe/fb_overlap.py"
_DSA = "MindSpeed-LLM 26.0.0 features_manager/transformer/multi_latent_attention/dsa_indexer_feature.py"

# fmt: off
declare((
    never("MS-FB-ZERO-MEMORY-2-3", "moe-fb-overlap & moe-zero-memory=level1",
          "Overlapped experts drop activations of level 0 only.",
          f"{_FB_2_2}:33; MindSpeed 2.3.0 features_manager/moe/fb_overlap.py:33", since=_FIRST, until=_LAST),
    needs("MS-FB-SCHEDULE-2-2", "moe-fb-overlap",
          "schedules-method=dualpipev or num-layers-per-virtual-pipeline-stage",
          "Overlapped experts need the interleaved or the DualPipeV schedule, also without a pipeline.",
          f"{_FB_2_2}:41", since=_FIRST, until="2.2.99"),
    needs("MS-MOE-ZERO-MEMORY-2-2", "moe-zero-memory=level0|level1",
          "moe-alltoall-overlap-comm or schedules-method=dualpipev",
          "Dropping the activations of experts needs overlapped all-to-all communication or the DualPipeV schedule.",
          "MindSpeed 2.2.0 features_manager/moe/moe_zero_memory.py:34", since=_FIRST, until="2.2.99"),
    never("MS-STAGE-WITHOUT-TRAINER-2-2", "stage=simpo|ray_ppo|ray_online_dpo|ray_grpo",
          "Four stages of --stage have no trainer, or one whose arguments the parser no longer has.",
          "MindSpeed-LLM 2.2.0 tasks/posttrain/launcher.py:36, and simpo_trainer.py (args.gamma_beta_ratio)",
          message="--stage {stage} cannot train in this version: it ends with an AttributeError", severity="warning",
          since=_FIRST, until="2.2.99"),
    never("MS-DSA-PACKED-26-0", "enable-dsa-indexer & reset-attention-mask",
          "DSA does not support packed samples.", f"{_DSA}:38", since="26.0", until="26.0.99"),
    never("MS-DSA-POSITIONS-26-0", "enable-dsa-indexer & reset-position-ids",
          "DSA does not support positions that restart with each document.", f"{_DSA}:38",
          since="26.0", until="26.0.99"),
    needs("MS-DSA-YARN-26-0", "enable-dsa-indexer", "rope-scaling-type=yarn",
          "DSA supports YaRN only.", f"{_DSA}:40", since="26.0", until="26.0.99"),
), backends=MINDSPEED)
# fmt: on

# Their features_manager has no such checks (multi_latent_attention/mla_feature.py, transformer/mtp.py @2.2.0, @2.3.0).
for _id in (
    *(f"MS-MLA-{name}" for name in ("OVERLAP-SP", "OVERLAP-SPLIT", "RC-MEMORY", "RC-OVERLAP", "PADDING")),
    *(f"MS-MLA-SWAP-{name}" for name in ("DUALPIPE", "OVERLAP")),
    "MS-MTP-CP-PACKED",
):
    lower(_id, "mindspeed", "2.2 and 2.3 do not check it, the versions before and after refuse it", since=_FIRST,
          until=_LAST)  # fmt: skip
