"""Lowers the limit as an experiment: does a request take less time when fewer are in flight?

If so, requests were waiting in a queue. Otherwise the API itself takes that long.
"""

from math import log

import msgspec

from ingest.flow.pace.attempt_window import Measured

# An experiment is conclusive once it has changed the requests in flight by this factor.
_ENOUGH = 0.9
# The change of the duration relative to the change of the requests in flight: 1 with a queue, 0 without one.
_HALF = 0.5


class Experiment(msgspec.Struct, frozen=True):
    """The measurements before the experiment.

    Attributes:
        in_flight: concurrent attempts, on average.
        mean: seconds of an attempt.
        limit: restored afterwards.
        is_steady: whether the measurements can be compared.
    """

    in_flight: float
    mean: float
    limit: float
    is_steady: bool

    @classmethod
    def after(cls, measured: Measured, limit: float) -> "Experiment":
        """An experiment that begins now."""
        return cls(measured.in_flight, measured.mean, limit, measured.is_steady)

    def is_over(self, measured: Measured) -> bool:
        """Whether the requests in flight have changed enough."""
        return measured.in_flight <= _ENOUGH * self.in_flight

    def shows_queue(self, measured: Measured) -> bool:
        """Whether fewer requests took less time."""
        return self._says_something(measured) and self._followed(measured) >= _HALF

    def shows_none(self, measured: Measured) -> bool:
        """Whether fewer requests took as long. If they took much longer, something else has changed."""
        return self._says_something(measured) and -_HALF < self._followed(measured) < _HALF

    def _says_something(self, measured: Measured) -> bool:
        return self.is_over(measured) and self.is_steady and measured.is_steady

    def _followed(self, measured: Measured) -> float:
        return log(measured.mean / self.mean) / log(measured.in_flight / self.in_flight)
