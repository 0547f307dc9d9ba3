"""The latency of simulated APIs: fixed, uniformly distributed, or lognormal."""

import math
from dataclasses import dataclass
from random import Random
from statistics import NormalDist
from typing import Self

_LONGEST = 3600.0


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds until a response.

    Attributes:
        low, high: bounds of the uniform distribution, or twice the median of the lognormal distribution.
        sigma: of the lognormal distribution, or None.
    """

    low: float
    high: float
    sigma: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `0.1`, `0.1-0.2` or `lognormal:MEDIAN,SIGMA`.

        Raises:
            ValueError: the text does not have one of the three forms, or is longer than an hour.
        """
        median, comma, sigma = text.removeprefix("lognormal:").partition(",")
        low, dash, high = text.partition("-")
        try:
            if comma and text.startswith("lognormal:"):
                middle = _seconds(median)
                math.log(middle)  # above 0
                return cls(middle, middle, _seconds(sigma))
            shortest = _seconds(low)
            return cls(shortest, _seconds(high, at_least=shortest) if dash else shortest)
        except ValueError:
            raise ValueError(
                f"{text!r} is not a latency; write 0.1, 0.1-0.2 or lognormal:MEDIAN,SIGMA in seconds, at most {_LONGEST:.0f}"
            ) from None

    def draw(self, random: Random) -> float:
        """Draw the seconds for a response."""
        if self.sigma is not None:
            return min(random.lognormvariate(math.log(self.low), self.sigma), _LONGEST)
        return random.uniform(self.low, self.high) if self.high else 0.0

    @property
    def mean(self) -> float:
        """The mean."""
        return (self.low + self.high) / 2 * math.exp((self.sigma or 0.0) ** 2 / 2)

    def quantile(self, share: float) -> float:
        """The seconds that this share of the responses does not exceed."""
        if self.sigma is not None:
            return self.low * math.exp(self.sigma * NormalDist().inv_cdf(share))
        return self.low + (self.high - self.low) * share


def _seconds(text: str, at_least: float = 0.0) -> float:
    seconds = float(text)
    if not at_least <= seconds <= _LONGEST:
        raise ValueError(text)
    return seconds
