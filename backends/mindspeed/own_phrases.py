"""What single arguments of MindSpeed-LLM do, where its own tables have one row for all of their kind.

From mindspeed/features_manager/**, mindspeed_llm/features_manager/** and training/arguments.py at 26.1.0 and 2.1.0.
"""

from collections.abc import Mapping

PHRASES: Mapping[str, str] = {
    "coc-mode": "chooses how communication over computation is done (0: not at all, 1: rewritten, 2: overlapped)",
    "coc-parallel-num": "sets in how many parts a product is overlapped with its communication",
    "coc-fused-kernel": "overlaps products and communication in one kernel",
    "hccl-group-buffer": "sets HCCL's buffer of each group of ranks",
    "hccl-group-buffer-adaptive": "sizes HCCL's buffer of each group of ranks by what it sends",
    "hccl-ep-group-buffer-adaptive-factor": "scales HCCL's buffer of expert-parallel groups",
    "hccl-op-mode": "chooses where HCCL expands the collectives of each group",
    "hccl-slice-size": "sets the pieces in which HCCL gathers the optimizer's state for a checkpoint",
    "lu-lora-final-layer-index": "sets the last layer that LU-LoRA trains",
    "lu-lora-lr": "sets the learning rate of LU-LoRA's layers",
    "lu-lora-lr-ratio": "sets the ratio of the learning rates of LU-LoRA's B and A",
    "profile-export-type": "chooses how a profile is written (text, db)",
    "profile-data-simplification": "keeps the essential files of a profile only",
    "profile-with-stack": "adds call stacks to a profile",
    "profile-with-memory": "adds memory to a profile",
    "profile-record-shapes": "adds shapes to a profile",
    "profile-with-cpu": "adds the host's side to a profile",
    "fp8-interval": "sets how often fp8's scales are taken, in iterations",
    "rope-scaling-beta-fast": "sets YaRN's upper bound of turns (beta_fast)",
    "rope-scaling-beta-slow": "sets YaRN's lower bound of turns (beta_slow)",
    "adaptive-cp-without-coarse": "schedules adaptive context parallelism without its coarse step",
    "adaptive-cp-dynamic-attn-mask": "schedules adaptive context parallelism anew for every mask",
    "adaptive-cp-only-reschedule": "moves the blocks of adaptive context parallelism without regrouping tokens",
    "adaptive-cp-manually-set-mask-list": "takes masks for adaptive context parallelism that the user's code sets",
}


def phrases() -> Mapping[str, str]:
    """Return a phrase for each argument, as `Own.does`."""
    return PHRASES
