"""Models: the canonical `model` section from and to Hugging Face's config.json."""

from launcher.families.config_json import config_from_model, determined_fields, model_from_config, read_config
from launcher.families.source import ModelConfigError

__all__ = ["ModelConfigError", "config_from_model", "determined_fields", "model_from_config", "read_config"]
