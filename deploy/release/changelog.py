"""What CHANGELOG.md says about releases, and what has to agree before one is built. Pure: text in, text out."""

import re
from dataclasses import dataclass
from datetime import date

UNRELEASED = "Unreleased"
_HEADING = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<date>\S+))?[ \t]*$", re.MULTILINE)
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the changelog.

    Attributes:
        name: a version, or `Unreleased`.
        date: as it is written; empty if there is none.
        text: what is below the heading, without blank lines around it.
    """

    name: str
    date: str
    text: str


def sections(changelog: str) -> list[Section]:
    """The sections in their order, the newest first."""
    headings = list(_HEADING.finditer(changelog))
    ends = [*(heading.start() for heading in headings), len(changelog)][1:]
    return [
        Section(heading["name"], heading["date"] or "", changelog[heading.end() : end].strip())
        for heading, end in zip(headings, ends, strict=True)
    ]


def released(changelog: str) -> list[Section]:
    """The sections of releases, the newest first."""
    return [section for section in sections(changelog) if section.name != UNRELEASED]


def disagreements(version: str, changelog: str) -> list[str]:
    """Why this version of the project cannot be released with this changelog, a line each; none if it can."""
    found = []
    if not _VERSION.fullmatch(version):
        found.append(f"pyproject.toml: the version {version!r} is not like 1.2.3 or 1.2.3rc1")
    if any(section.name == UNRELEASED and section.text for section in sections(changelog)):
        found.append(
            f"CHANGELOG.md: {UNRELEASED!r} has entries that belong to {version}: `make release ARGS=--prepare` moves them"
        )
    newest = next(iter(released(changelog)), None)
    if newest is None or newest.name != version:
        says = "no release" if newest is None else f"{newest.name} as the newest release"
        return [*found, f"CHANGELOG.md has {says}, but pyproject.toml has the version {version}"]
    if not _is_date(newest.date):
        found.append(f"CHANGELOG.md: the heading of {version} needs its date: ## [{version}] - YYYY-MM-DD")
    if not newest.text:
        found.append(f"CHANGELOG.md: nothing is written about {version}")
    return found


def prepared(version: str, changelog: str, today: date) -> str:
    """The changelog in which what was unreleased is this version, of this day.

    Raises:
        ValueError: if nothing is unreleased, or the version has a section already.
    """
    names = {section.name: section for section in sections(changelog)}
    if version in names:
        raise ValueError(f"CHANGELOG.md has a section for {version} already: set the next version in pyproject.toml")
    if UNRELEASED not in names or not names[UNRELEASED].text:
        raise ValueError(f"CHANGELOG.md has nothing under {UNRELEASED!r}")
    heading = f"## [{UNRELEASED}]"
    return changelog.replace(heading, f"{heading}\n\n## [{version}] - {today.isoformat()}", 1)


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
