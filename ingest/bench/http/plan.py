"""Describes the options of the bench."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from ingest.lab.described import described


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run. The described fields are options of `ingest bench http`, and `cases` are names of `CASES`."""

    cases: Sequence[str] = ()
    clients: Annotated[int, described(None, "Connections.", ge=1, le=5_000)] = 200
    processes: Annotated[int, described(None, "Processes of each server.", ge=1, le=64)] = 1
    seconds: Annotated[float, described(None, "Length of each measurement.", ge=0.1, le=3600)] = 30.0
    streamed: Annotated[
        int, described(None, "Orders of one streamed request, of the case ndjson.", ge=1, le=100_000)
    ] = 100_000
