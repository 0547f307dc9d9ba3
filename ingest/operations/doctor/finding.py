"""What a check has found: one line for people, with what to do about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Area(StrEnum):
    """What was checked."""

    REDIS = "redis"
    POSTGRES = "postgres"
    OUTBOX = "outbox"
    UPSTREAM = "upstream"
    SETTINGS = "settings"


class Level(StrEnum):
    """How serious a finding is: a fault stops the service or loses data, a warning may do so later."""

    GOOD = "good"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        what: was found.
        advice: what to do; empty where nothing has to be done.
    """

    area: Area
    level: Level
    what: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Checks:
    """Makes the findings of one area."""

    area: Area

    def good(self, what: str) -> Finding:
        """Nothing has to be done."""
        return Finding(self.area, Level.GOOD, what)

    def warning(self, what: str, advice: str) -> Finding:
        """The service works, and may not always."""
        return Finding(self.area, Level.WARNING, what, advice)

    def fault(self, what: str, advice: str) -> Finding:
        """The service does not work like this, or loses data."""
        return Finding(self.area, Level.FAULT, what, advice)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, by area."""

    findings: Sequence[Finding]

    @property
    def is_sound(self) -> bool:
        """Whether there is no fault."""
        return not self.count(Level.FAULT)

    def count(self, level: Level) -> int:
        """How many findings have this level."""
        return sum(finding.level is level for finding in self.findings)
