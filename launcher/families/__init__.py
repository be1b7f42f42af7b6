"""Model families: one file each in `architectures`; the canonical `model` section from and to config.json."""
