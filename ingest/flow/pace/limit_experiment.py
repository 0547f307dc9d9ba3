"""A lower limit as an experiment: does a request take less time when fewer are in flight?

If it does, requests were waiting for each other, in a queue. If it does not, the API itself takes that long.
"""

from math import log

import msgspec

from ingest.flow.pace.attempt_window import Measured

# An experiment says something when it has changed the requests in flight by this factor.
_ENOUGH = 0.9
# Of the change in flight, the part that duration follows: 1 with a queue, 0 without one.
_HALF = 0.5


class Experiment(msgspec.Struct, frozen=True):
    """What was before.

    Attributes:
        in_flight: attempts at a time.
        mean: seconds of an attempt.
        limit: to be restored.
        is_steady: whether that can be compared with anything.
    """

    in_flight: float
    mean: float
    limit: float
    is_steady: bool

    @classmethod
    def after(cls, measured: Measured, limit: float) -> "Experiment":
        """One that begins now."""
        return cls(measured.in_flight, measured.mean, limit, measured.is_steady)

    def is_over(self, measured: Measured) -> bool:
        """Whether it has changed enough."""
        return measured.in_flight <= _ENOUGH * self.in_flight

    def shows_queue(self, measured: Measured) -> bool:
        """Whether fewer take less time."""
        return self._says_something(measured) and self._followed(measured) >= _HALF

    def shows_none(self, measured: Measured) -> bool:
        """Whether fewer take as long; if they take much longer, something else has changed meanwhile."""
        return self._says_something(measured) and -_HALF < self._followed(measured) < _HALF

    def _says_something(self, measured: Measured) -> bool:
        return self.is_over(measured) and self.is_steady and measured.is_steady

    def _followed(self, measured: Measured) -> float:
        return log(measured.mean / self.mean) / log(measured.in_flight / self.in_flight)
