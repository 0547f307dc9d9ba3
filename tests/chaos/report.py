"""Reports the run at the end, as a text or as an object for scripts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from chaos.check import Findings
from chaos.plan import GROUPS, Kind
from chaos.stage import KILLED


@dataclass(frozen=True, slots=True)
class Report:
    """One run.

    Attributes:
        seconds: duration of the faults.
        struck: number of applied faults by kind.
        drained_after: seconds from the last fault until the queue was empty, or None if it never was.
        exits: exits of the worker commands that were not killed.
        accidents: unplanned events.
        history: violations that `chaos.account` found.
        logs: folder of the logs, or None if they are removed.
    """

    seed: int
    seconds: float
    struck: Counter[Kind]
    drained_after: float | None
    exits: dict[str, int]
    accidents: list[str]
    findings: Findings
    history: list[str]
    logs: str | None = None

    @property
    def complaints(self) -> list[str]:
        """A line for each violation."""
        stuck = ["the queue was not empty in time"] if self.drained_after is None else []
        unwilling = [f"workers that did not stop when asked: {self.exits[KILLED]}"] if KILLED in self.exits else []
        return [*stuck, *unwilling, *self.accidents, *self.findings.complaints, *self.history]

    @property
    def is_sound(self) -> bool:
        return not self.complaints

    @property
    def groups(self) -> dict[str, int]:
        """The number of faults by group."""
        return {group: sum(self.struck[kind] for kind in kinds) for group, kinds in GROUPS.items()}

    def as_dict(self) -> dict[str, Any]:
        """All of it for a script."""
        findings = self.findings
        return {
            "sound": self.is_sound,
            "complaints": self.complaints,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "drained_after": None if self.drained_after is None else round(self.drained_after, 1),
            "faults": {kind.value: self.struck[kind] for kind in Kind},
            "groups": self.groups,
            "exits": self.exits,
            **asdict(findings),
            "accounts": {name: shop.account.as_dict() for name, shop in findings.shops.items()},
            "logs": self.logs,
        }

    def __str__(self) -> str:
        findings, shops = self.findings, self.findings.shops
        drained = "never" if self.drained_after is None else f"{self.drained_after:.1f} s after the last fault"
        rows = {
            "seed": str(self.seed),
            "faults": _counts(self.groups),
            "queue empty": drained,
            "worker exits": _counts(self.exits),
            "redelivered": _counts(findings.redeliveries),
            "requests": f"{sum(shop.requests for shop in shops.values()):,}: {_counts(findings.answers)}",
            "fetched again": f"{sum(shop.fetched_again for shop in shops.values()):,} whole orders,"
            " beyond one for each announcement",
        }
        for name, shop in shops.items():
            if shop.unreplicated:
                rows[f"lost {name}".rstrip()] = (
                    f"{len(shop.unreplicated):,} entries that were not replicated at a failover, and thereby"
                    f" {len(shop.lost_by_replication):,} orders: {', '.join(shop.lost_by_replication) or 'none'}"
                )
        lines = [f"{label:<16}{text}" for label, text in rows.items()]
        verdict = ["", *(f"NOT SOUND: {line}" for line in self.complaints)] if self.complaints else ["", "SOUND"]
        if self.logs:
            verdict.append(f"the logs are in {self.logs}")
        accounts = [(f"\n{name}\n" if name else "\n") + str(shop.account) for name, shop in shops.items()]
        return "\n".join([*lines, *accounts, *verdict])


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()) if count) or "none"
