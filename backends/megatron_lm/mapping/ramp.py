"""A growing global batch as a schedule of sizes: `--rampup-batch-size` and `--step-batch-size-schedule`."""

from collections.abc import Iterator
from typing import Self

from launcher.records import dataclass

_SUFFIXES = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """A batch that grows by equal steps at equal distances.

    Attributes:
        start, step: first size and increment.
        samples: sequences after which the last size is reached.
        batch: the last size.

    Raises:
        ValueError: the last size is not the first one plus increments, or they are closer than one sequence.
    """

    start: int
    step: int
    samples: int
    batch: int

    def __post_init__(self) -> None:
        if self.start < 1 or self.step < 1:
            raise ValueError("first size and step are at least 1")
        if self.batch <= self.start or (self.batch - self.start) % self.step:
            raise ValueError(f"batch {self.batch} is not {self.start} plus one or more steps of {self.step}")
        if self.samples < self.steps:
            raise ValueError(f"{self.steps} steps need at least as many sequences, not {self.samples}")

    @property
    def steps(self) -> int:
        """How often the batch grows."""
        return (self.batch - self.start) // self.step

    def schedule(self, length: int) -> str:
        """Return the schedule, whose thresholds are tokens: a size begins with the first whole sequence at its place.

        Args:
            length: of a sequence.
        """
        return " ".join(f"{samples * length}:{size}" for samples, size in self._sizes())

    def _sizes(self) -> Iterator[tuple[int, int]]:
        # The older calculator divides by this number, whose rounding may move a step by one sequence
        # (num_microbatches_calculator.py:436, 456 @core_v0.17.1).
        distance = self.samples / self.steps
        for number in range(self.steps + 1):
            place = -(-number * self.samples // self.steps)
            nearest = (each for each in (place - 1, place) if each >= 0 and int(each / distance) >= number)
            yield next(nearest, place + 1), self.start + number * self.step

    @classmethod
    def of(cls, schedule: str, length: int) -> Self | None:
        """Return the ramp that is written as this schedule; None: it grows otherwise, or is written otherwise."""
        entries = parse_schedule(schedule, length)
        if not entries or len(entries) < 2:
            return None
        (_, start), (_, second) = entries[:2]
        samples, batch = entries[-1]
        for each in (samples, samples - 1):
            try:
                ramp = cls(start=start, step=second - start, samples=each, batch=batch)
            except ValueError:
                continue  # not the end of a ramp
            if ramp.schedule(length) == schedule:
                return ramp
        return None


def parse_schedule(schedule: str, length: int | None) -> list[tuple[int, int]] | None:
    """Return samples and batch size of each entry, in order of the samples; None: it is no schedule.

    Args:
        schedule: `TOKENS:SIZE TOKENS:SIZE …`; numbers may end with K, M, B or T.
        length: of a sequence; None: the thresholds are samples.

    Source: megatron-core 0.18.2 num_microbatches_calculator.py:503.
    """
    found = []
    for entry in schedule.strip().replace(",", " ").split():
        threshold, colon, size = entry.partition(":")
        try:
            tokens, batch = _number(threshold), _number(size)
        except (ValueError, OverflowError):
            return None
        if not colon:
            return None
        found.append((tokens if length is None else tokens // length, batch))
    return sorted(found, key=lambda each: each[0])


def _number(text: str) -> int:
    text = text.strip().upper()
    factor = _SUFFIXES.get(text[-1:], 1)
    return int(float(text[:-1] if factor > 1 else text) * factor)
