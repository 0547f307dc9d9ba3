"""Renders the templates of the console. Every value is escaped, and an undefined name is an error."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ingest.mapping.compiled.minor_units import digits_of

_TEMPLATES = Path(__file__).parent / "templates"
_MISSING = "–"  # noqa: RUF001  a dash in a table
_LONGEST = 200
_ROW = re.compile("<tr.*?</tr>", re.DOTALL)
_CELL = re.compile("<t[dh](?=[ >])")
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def make_environment() -> Environment:
    """Return the environment of all templates."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "number": number,
        "rate": rate,
        "duration": duration,
        "percent": percent,
        "size": size,
        "moment": moment,
        "age": age,
        "url": url,
        "printable": printable,
        "repeated": lambda text: (text, text),
        "shortened": shortened,
        "labelled": labelled,
        "amount": amount,
    }
    return environment


def number(value: float | None) -> str:
    """Format a count, such as `12,345`. A dash if it is unknown."""
    return _MISSING if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Format a number per second, such as `1,234` or `0.25`. A dash if it is unknown."""
    if value is None:
        return _MISSING
    if value >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def duration(seconds: float | None) -> str:
    """Format a duration in its largest unit, such as `250 ms`, `1.5 s` or `3 min`. A dash if it is unknown."""
    if seconds is None:
        return _MISSING
    for unit, length in _UNITS:
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def percent(share: float | None) -> str:
    """Format a share, such as `12 %`. A dash if it is unknown."""
    if share is None:
        return _MISSING
    return f"{share:.1%}".replace("%", " %") if 0 < share < 0.1 else f"{share:.0%}".replace("%", " %")


def size(count: int) -> str:
    """Format a number of bytes, such as `512 KiB`, `12.3 MiB` or `4.0 GiB`."""
    if count < 1 << 20:
        return f"{count / (1 << 10):,.0f} KiB"
    return f"{count / (1 << 20):,.1f} MiB" if count < 1 << 30 else f"{count / (1 << 30):,.1f} GiB"


def amount(value: str, currency: str) -> str:
    """Format an amount with at least the decimal places of its currency, and all that it has."""
    whole, _, decimals = value.partition(".")
    decimals = decimals.ljust(digits_of(currency), "0")
    return f"{whole}.{decimals}" if decimals else whole


def moment(value: datetime | None) -> Markup | str:
    """Format a time in UTC as an element that contains its exact value."""
    if value is None:
        return _MISSING
    exact = value.astimezone(UTC)
    shown = f"{exact:%Y-%m-%d %H:%M:%S}"
    return Markup('<time datetime="{}">{}</time>').format(exact.isoformat(timespec="milliseconds"), shown)


def age(value: datetime | None) -> Markup | str:
    """Format the time since a moment, such as `3 min ago`, with the exact time in its title."""
    if value is None:
        return _MISSING
    exact = value.astimezone(UTC)
    shown = duration(max(0.0, (datetime.now(UTC) - exact).total_seconds()))
    full = exact.isoformat(timespec="seconds")
    return Markup('<time datetime="{}" title="{}">{} ago</time>').format(full, full, shown)


def url(path: str, **parameters: Any) -> str:
    """Add a query to a path. A parameter that is None is omitted, and a list is repeated."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def printable(text: str) -> str:
    r"""Replace characters that hide or reorder text with backslash escapes. Line breaks stay."""
    return "".join(
        character if character.isprintable() or character == "\n" else character.encode("unicode_escape").decode()
        for character in text
    )


def shortened(value: Any) -> str:
    """Format a value of a selection, which may be a long list of IDs, in at most 200 characters."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def labelled(rows: str, columns: Sequence[str | tuple[str, str]]) -> Markup:
    """Name the column of each cell, for narrow screens on which the rows of a table are cards. Texts in the rows are escaped."""
    names = [column if isinstance(column, str) else column[0] for column in columns]

    def label(row: re.Match[str]) -> str:
        name = iter(names)
        return _CELL.sub(lambda cell: f'{cell[0]} data-label="{escape(next(name, ""))}"', row[0])

    return Markup(_ROW.sub(label, rows))  # noqa: S704  rendered by a template
