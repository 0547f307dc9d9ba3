"""The sources of IDs for `ingest enqueue` and `ingest reconcile`: arguments, lines, a CSV column, a member of JSON lines."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Literal

import msgspec

from ingest.cli.orders.id_sources.csv_column import read_column
from ingest.cli.orders.id_sources.found import LONGEST_LINE, Found, UnreadableSource
from ingest.domain.errors import ConfigError
from ingest.domain.orders.order_id import looks_like_json

Format = Literal["lines", "csv", "jsonl"]
_FORMATS: dict[str, Format] = {"lines": "lines", "csv": "csv", "jsonl": "jsonl"}
_BY_SUFFIX: dict[str, Format] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@dataclass(frozen=True, slots=True)
class IdSource:
    """A source of IDs.

    Attributes:
        name: for messages.
        size: in bytes or arguments, or None if unknown.
        read: yields what it finds one at a time, however large the source is.
    """

    name: str
    size: int | None
    read: Callable[[], Iterator[Found]]


def pick_source(
    ids: Sequence[str], file: str | None, sample: int | None, column: str | None, file_format: str | None, *, usage: str
) -> IdSource:
    """The source that the command line names.

    Raises:
        ConfigError: if it names none or several (`usage` says which ones the command takes), or has options that do not fit.
    """
    if ids == ["-"]:
        ids, file = [], "-"
    if [bool(ids), file is not None, sample is not None].count(True) != 1:
        raise ConfigError(f"give {usage}")
    if file is None and (column is not None or file_format is not None):
        raise ConfigError("--column and --format require --file or `-`")
    if sample is not None:
        return IdSource("the sample orders", sample, lambda: _arguments(_samples(sample)))
    if ids:
        return IdSource("the arguments", len(ids), lambda: _arguments(ids))
    path = str(file)
    chosen = _format(path, file_format)
    if chosen != "lines" and column is None:
        raise ConfigError(f"--column is required: the {'column' if chosen == 'csv' else 'member'} that holds the ID")
    if chosen == "lines" and column is not None:
        raise ConfigError("--column requires --format csv or jsonl")
    return IdSource(_name(path), _size(path), lambda: _read(path, chosen, str(column)))


def _name(path: str) -> str:
    return "stdin" if path == "-" else path


def _format(path: str, given: str | None) -> Format:
    if given is None:
        return _BY_SUFFIX.get(Path(path).suffix.lower(), "lines")
    if given not in _FORMATS:
        raise ConfigError(f"--format must be lines, csv or jsonl, not {given!r}")
    return _FORMATS[given]


def _size(path: str) -> int | None:
    if path == "-":
        return None
    try:
        return Path(path).stat().st_size or None
    except OSError as error:
        raise UnreadableSource(f"cannot read {path}: {error.strerror}") from error


def _samples(count: int) -> Iterator[str]:
    # Imported here, as only --sample needs it.
    from ingest.lab.upstream.samples import sample_orders

    return islice(cycle(sample_orders()), count)


def _arguments(ids: Iterable[str]) -> Iterator[Found]:
    for number, text in enumerate(ids, 1):
        yield Found(number, text, position=number)


def _read(path: str, chosen: Format, column: str) -> Iterator[Found]:
    lines = _lines(path)
    if chosen == "lines":
        yield from (_unquoted(found) for found in lines if found.text is None or found.text.strip())
    elif chosen == "csv":
        yield from read_column(lines, column, _name(path))
    else:
        yield from _jsonl(lines, column)


def _lines(path: str) -> Iterator[Found]:
    position = number = 0
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as stream:
            while raw := stream.readline(LONGEST_LINE):
                position += len(raw)
                number += 1
                if len(raw) == LONGEST_LINE:
                    raise UnreadableSource(
                        f"line {number} of {_name(path)} is longer than {LONGEST_LINE} bytes: this is not a list of IDs"
                    )
                try:
                    # Spreadsheets write a byte order mark before UTF-8. It is not part of the first line.
                    text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                    yield Found(number, text.strip() if "," not in text else text, position=position)
                except UnicodeDecodeError:
                    yield Found(number, None, "not UTF-8 text", position)
    except OSError as error:
        raise UnreadableSource(f"cannot read {_name(path)}: {error.strerror}") from error


def _unquoted(found: Found) -> Found:
    """The ID that a line is, or has as a JSON string."""
    text = (found.text or "").strip()
    if text.startswith('"'):
        try:
            return replace(found, text=msgspec.json.decode(text, type=str))
        except (msgspec.DecodeError, UnicodeError) as error:
            return replace(found, text=None, problem=f"begins with a quote, and is not a JSON string: {error}")
    if looks_like_json(text):
        problem = "looks like JSON: use --format jsonl for objects, or write the ID as a JSON string"
        return replace(found, text=None, problem=problem)
    return found if found.text is None else replace(found, text=text)


def _jsonl(lines: Iterator[Found], member: str) -> Iterator[Found]:
    for found in lines:
        if found.text is None:
            yield found
            continue
        if not found.text.strip():
            continue
        text, problem = _member(found.text, member)
        yield Found(found.line, text, problem, found.position)


def _member(line: str, member: str) -> tuple[str | None, str]:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError) as error:
        return None, f"not JSON: {error}"
    except RecursionError:
        return None, "nested too deeply"
    if not isinstance(value, dict) or member not in value:
        return None, f"no member {member!r}"
    identifier = value[member]
    if isinstance(identifier, bool) or not isinstance(identifier, (str, int)):
        return None, f"{member!r} is neither a string nor an integer"
    return str(identifier), ""
