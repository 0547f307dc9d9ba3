"""Reads CHANGELOG.md, compares it with the version, and dates a release, without touching files."""

import re
from dataclasses import dataclass
from datetime import date

UNRELEASED = "Unreleased"
_HEADING = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<date>\S+))?[ \t]*$", re.MULTILINE)
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")


@dataclass(frozen=True, slots=True)
class Section:
    """One section of the changelog.

    Attributes:
        name: a version, or `Unreleased`.
        date: the text after the version, or an empty string.
        text: the content below the heading, without surrounding blank lines.
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
    """One line for each reason why this version cannot be released with this changelog."""
    found = []
    if not _VERSION.fullmatch(version):
        found.append(f"pyproject.toml: the version {version!r} is not like 1.2.3 or 1.2.3rc1")
    if any(section.name == UNRELEASED and section.text for section in sections(changelog)):
        found.append(
            f"CHANGELOG.md: {UNRELEASED!r} contains entries; `make release ARGS=--prepare` turns them into version {version}"
        )
    newest = next(iter(released(changelog)), None)
    if newest is None or newest.name != version:
        newest_release = "it contains no release" if newest is None else f"its newest release is {newest.name}"
        return [*found, f"CHANGELOG.md: {newest_release}, but pyproject.toml contains version {version}"]
    if not _is_date(newest.date):
        found.append(f"CHANGELOG.md: the heading of {version} needs a date, such as ## [{version}] - YYYY-MM-DD")
    if not newest.text:
        found.append(f"CHANGELOG.md: the section of {version} is empty")
    return found


def prepared(version: str, changelog: str, today: date) -> str:
    """The changelog with the unreleased changes as this version, dated today.

    Raises:
        ValueError: if there are no unreleased changes, or the version already exists.
    """
    names = {section.name: section for section in sections(changelog)}
    if version in names:
        raise ValueError(f"CHANGELOG.md already contains version {version}; set the next version in pyproject.toml")
    if UNRELEASED not in names or not names[UNRELEASED].text:
        raise ValueError(f"CHANGELOG.md: {UNRELEASED!r} is empty")
    heading = f"## [{UNRELEASED}]"
    return changelog.replace(heading, f"{heading}\n\n## [{version}] - {today.isoformat()}", 1)


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
