"""What is said to work where a size does not divide what it splits."""

from collections.abc import Iterable

_MOST = 2


def works(path: str, sizes: Iterable[int], now: int) -> str:
    """Return the sizes nearest to the present one as overrides, to be added to a message; empty: there are none."""
    near = sorted((size for size in sizes if size != now), key=lambda size: (abs(size - now), size))[:_MOST]
    return f"; works: {' · '.join(f'{path}={size}' for size in sorted(near))}" if near else ""


def divisors(*counts: int) -> list[int]:
    """Return what divides all of these counts."""
    return [size for size in range(1, min(counts) + 1) if not any(count % size for count in counts)]
