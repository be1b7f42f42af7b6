"""Low-rank adapters: what a PEFT folder holds, and how it is merged into the model that it was trained on."""
