"""Keys of a MindFormers file whose mapping is one value: its keys are data and not names of settings."""

MAPPING_VALUES = frozenset(
    {
        "model.model_config.rope_scaling",
        "model.model_config.pet_config",
        "recompute_config.select_recompute",
        "recompute_config.select_comm_recompute",
        "recompute_config.select_recompute_exclude",
        "recompute_config.select_comm_recompute_exclude",
        "swap_config.op_swap",
        "model.model_config.op_swap",
        "model.model_config.select_recompute",
    }
)
