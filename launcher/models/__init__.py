"""Models: the canonical `model` section from and to Hugging Face's config.json."""

from launcher.models.hf import config_from_model, determined_fields, model_from_config
from launcher.models.source import ModelConfigError

__all__ = ["ModelConfigError", "config_from_model", "determined_fields", "model_from_config"]
