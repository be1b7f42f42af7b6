"""Scripts of Megatron-LM's checkouts that train other kinds of model than this launcher describes."""

OTHERS = (
    "pretrain_bert.py",
    "pretrain_t5.py",
    "pretrain_ict.py",
    "pretrain_retro.py",
    "pretrain_vlm.py",
    "pretrain_vit.py",
    "pretrain_vision_classify.py",
    "pretrain_vision_dino.py",
    "pretrain_vision_inpaint.py",
)
