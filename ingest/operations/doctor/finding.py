"""The result of a check: one line for an operator, with advice."""

from dataclasses import dataclass
from enum import StrEnum

from ingest.domain.errors import StoreUnavailable
from ingest.store.connections.translation import StoreRefused

# A difference only misleads readers of timestamps, because leases and heartbeats are compared by one clock.
LARGEST_CLOCK_DIFFERENCE = 5.0
_SLOW = 0.1


class Area(StrEnum):
    """The part of the set-up that a check covers."""

    REDIS = "redis"
    POSTGRES = "postgres"
    OUTBOX = "outbox"
    UPSTREAM = "upstream"
    SETTINGS = "settings"
    WORKERS = "workers"


class Level(StrEnum):
    """The severity of a finding. An error stops the service or loses data. A warning may do so later."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        what: the observation.
        advice: how to solve the problem. Empty if there is none.
        source: the name of the source, or empty for what all sources share.
    """

    area: Area
    level: Level
    what: str
    advice: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Checks:
    """Makes the findings of one area."""

    area: Area

    def ok(self, what: str) -> Finding:
        """Report that a check passed."""
        return Finding(self.area, Level.OK, what)

    def warning(self, what: str, advice: str) -> Finding:
        """Report that the service works, but may fail later."""
        return Finding(self.area, Level.WARNING, what, advice)

    def error(self, what: str, advice: str) -> Finding:
        """Report that the service does not work with this set-up, or loses data."""
        return Finding(self.area, Level.ERROR, what, advice)

    def unusable_database(self, error: StoreUnavailable, setting: str) -> Finding:
        """Report that the PostgreSQL of this setting cannot be used at all."""
        if isinstance(error, StoreRefused):
            return self.error(str(error), f"check user, password and database in {setting}")
        return self.error(f"unavailable: {error}", f"start it, or check {setting} and the network between")

    def round_trip(self, seconds: float, advice: str) -> Finding:
        """Report how long a server takes to respond."""
        if seconds > _SLOW:
            return self.warning(f"a round trip takes {seconds * 1000:.0f} ms", advice)
        return self.ok(f"a round trip takes {seconds * 1000:.1f} ms")

    def clock(self, server: str, ahead: float | None) -> Finding:
        """Report by how many seconds a server's clock is ahead of ours. None if the time may not be read."""
        if ahead is None:
            return self.warning(f"the clock of {server} may not be read", "grant the right to read the time")
        if abs(ahead) <= LARGEST_CLOCK_DIFFERENCE:
            return self.ok(f"its clock differs by {abs(ahead) * 1000:.0f} ms from this machine's")
        direction = "ahead of" if ahead > 0 else "behind"
        return self.warning(
            f"its clock is {abs(ahead):,.0f} s {direction} this machine's",
            "synchronize both by NTP, because due times, ages and versions of orders follow these clocks",
        )
