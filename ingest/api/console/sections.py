"""The sections of the console in the order of its navigation."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """An entry of the navigation."""

    title: str
    path: str


SECTIONS = (
    Section("Overview", "/"),
    Section("Orders", "/orders"),
    Section("Dead letters", "/dead-letters"),
    Section("Retries", "/retries"),
    Section("Jobs", "/jobs"),
    Section("Sources", "/sources"),
    Section("Workers", "/workers"),
    Section("Audit", "/audit"),
    Section("Settings", "/settings"),
    Section("Help", "/help"),
)
