"""The simulated calls: they sleep for seeded times, the same ones for every way of making them."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Self

_RANGE = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class Latency:
    """How long a call takes, uniformly distributed.

    Attributes:
        low: milliseconds, at least.
        high: milliseconds, at most.
    """

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `100-200`.

        Raises:
            ValueError: it is not a range.
        """
        match = _RANGE.fullmatch(text)
        if match is None or int(match[1]) > int(match[2]):
            raise ValueError(f"{text!r} is no range of milliseconds such as 100-200")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.low}-{self.high}"

    def draws(self, calls: int, seed: int) -> list[float]:
        """Seconds for each call."""
        draw = Random(seed).uniform
        return [draw(self.low, self.high) / 1000 for _ in range(calls)]


class Calls:
    """Calls, each to be made once, by its number; they count themselves.

    Attributes:
        done: calls that have ended.
        most_in_flight: calls at a time.
    """

    def __init__(self, seconds: Sequence[float]) -> None:
        self._seconds = seconds
        self._in_flight = 0
        self.done = 0
        self.most_in_flight = 0

    def __len__(self) -> int:
        return len(self._seconds)

    async def make(self, number: int) -> None:
        """Make one call."""
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            await asyncio.sleep(self._seconds[number])
            self.done += 1
        finally:
            self._in_flight -= 1
