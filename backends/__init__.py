"""The backends that ship with the launcher: the names in one place, so that launcher/ knows none of them."""

# Looked up without importlib.metadata, whose scan of all installed packages costs more than a whole translation.
BUILT_IN = ("megatron", "megatron_lm", "mindspeed", "mindformers")
# The dialect, and its version, that the embedded trainer on megatron-core reads.
REHEARSAL_DIALECT = ("megatron_lm", "0.16.1")
