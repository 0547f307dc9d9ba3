"""Tells where something other than a contender limited its throughput: the simulated API, or all of the machine."""

from collections.abc import Sequence

import psutil

from ingest.bench.pipeline.figures import Figures

_BUSY = 0.9
"""A share of what it has from which on the API, or the machine, can hardly do more."""


def limit_notes(rows: Sequence[Figures], cores: int | None = None) -> list[str]:
    """A sentence for each limit that some rows of a table have reached.

    Args:
        rows: of contenders, or of swept values.
        cores: of the machine; by default of this one.
    """
    cores = cores or psutil.cpu_count() or 1
    api = [row for row in rows if (row["api_busy_cores"] or 0.0) >= _BUSY]
    machine = [row for row in rows if (row["busy_cores"] or 0.0) >= _BUSY * cores]
    found = []
    if api:
        most = max(row["api_busy_cores"] for row in api)
        found.append(
            f"The simulated API, which has one core, was the limit of {_names(api)}: it used {most:.2f} of it."
        )
    if machine:
        found.append(
            f"All {cores} cores were busy during the runs of {_names(machine)}: the throughput depends on whatever ran beside "
            "the contender; compare own CPU per order."
        )
    return found


def _names(rows: Sequence[Figures]) -> str:
    return ", ".join(str(row.get("swept", row["contender"])) for row in rows)
