"""Which variables hold secrets, by their names: such values are taken from the environment and never written."""

import re

_SECRET = re.compile(r"(_KEY|_TOKEN|_SECRET|PASSWORD|PASSWD)$", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Tell whether a variable's value is a secret."""
    return _SECRET.search(name) is not None
