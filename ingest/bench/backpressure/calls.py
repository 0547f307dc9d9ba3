"""The simulated calls, which sleep for seeded times that are the same for every way."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Self

_RANGE = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class Latency:
    """The uniformly distributed duration of a call.

    Attributes:
        low: minimum in milliseconds.
        high: maximum in milliseconds.
    """

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a range such as `100-200`.

        Raises:
            ValueError: the text is not a range.
        """
        match = _RANGE.fullmatch(text)
        if match is None or int(match[1]) > int(match[2]):
            raise ValueError(f"{text!r} is not a range of milliseconds such as 100-200")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.low}-{self.high}"

    def draws(self, calls: int, seed: int) -> list[float]:
        """Seconds for each call."""
        draw = Random(seed).uniform
        return [draw(self.low, self.high) / 1000 for _ in range(calls)]


class Calls:
    """Numbered calls, each to be made once.

    Attributes:
        done: number of finished calls.
        most_in_flight: maximum number of concurrent calls.
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
