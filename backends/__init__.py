"""The backends that ship with the launcher: the names in one place, so that launcher/ knows none of them."""

# Looked up without importlib.metadata, whose scan of all installed packages costs more than a whole translation.
BUILT_IN = ("megatron", "megatron_lm", "mindspeed", "mindformers")
# Backend and version whose arguments the embedded trainer on megatron-core reads.
CORE_BACKEND = ("megatron_lm", "0.16.1")
