"""The result of a check: one line for an operator, with advice."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Area(StrEnum):
    """The part of the set-up that a check covers."""

    REDIS = "redis"
    POSTGRES = "postgres"
    OUTBOX = "outbox"
    UPSTREAM = "upstream"
    SETTINGS = "settings"


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
    """

    area: Area
    level: Level
    what: str
    advice: str = ""


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


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, by area."""

    findings: Sequence[Finding]

    @property
    def is_clean(self) -> bool:
        """Whether no check found an error."""
        return not self.count(Level.ERROR)

    def count(self, level: Level) -> int:
        """Count the findings of this level."""
        return sum(finding.level is level for finding in self.findings)
