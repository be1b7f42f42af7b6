"""One module a family, named as its `model_type`, with its record FAMILY."""
