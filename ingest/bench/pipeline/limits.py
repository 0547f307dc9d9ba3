"""Finds contenders whose throughput was limited by the simulated API or by the whole machine."""

from collections.abc import Sequence

import psutil

from ingest.bench.pipeline.figures import Figures

_BUSY = 0.9
"""The used share of its cores from which on the API or the machine can hardly do more."""


def limit_notes(rows: Sequence[Figures], cores: int | None = None) -> list[str]:
    """A sentence for each limit that some rows of a table have reached.

    Args:
        rows: rows of contenders or of swept values.
        cores: cores of the machine, by default of this one.
    """
    cores = cores or psutil.cpu_count() or 1
    api = [row for row in rows if (row["api_busy_cores"] or 0.0) >= _BUSY]
    machine = [row for row in rows if (row["busy_cores"] or 0.0) >= _BUSY * cores]
    found = []
    if api:
        most = max(row["api_busy_cores"] for row in api)
        found.append(
            f"The simulated API was the limit of {_names(api)}, because it used {most:.2f} of its single core."
        )
    if machine:
        found.append(
            f"All {cores} cores were busy during the runs of {_names(machine)}, so that the throughput depends on "
            "other processes. Compare own CPU per order instead."
        )
    return found


def _names(rows: Sequence[Figures]) -> str:
    return ", ".join(str(row.get("swept", row["contender"])) for row in rows)
