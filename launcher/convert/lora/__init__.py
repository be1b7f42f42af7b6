"""LoRA adapters: reading, merging and converting them."""
