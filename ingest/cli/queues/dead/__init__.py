"""`ingest dead`: manages the dead letters. This module replays and drops them.

The selection of dead letters is the same for all its commands.
"""

from ingest.cli.options import Changing
from ingest.cli.queues.criteria import changing
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.operating.jobs import JobKind

COMMANDS = ("list", "groups", "show", "replay", "drop", "export")


def dead() -> None:
    """List, replay, drop or export dead letters.

    Examples:
    `ingest dead list --since 2h` lists the dead letters of the last two hours, newest first.

    `ingest dead groups` counts the dead letters by reason and error.

    `ingest dead show 536365` shows every detail of a dead letter. The ID is an order's or a dead letter's.

    `ingest dead replay --reason not_found --dry-run` shows what would go back into the queue. Without `--dry-run`,
    it goes back.

    `ingest dead drop --reason rejected --until 30d` deletes dead letters that are more than 30 days old.

    `ingest dead export --format csv --output dead.csv` writes all dead letters to a file.

    Run `ingest dead replay --help` for the help of a command.
    """


@changing(EntryKind.DEAD_LETTERS)
def replay(options: Changing) -> None:
    """Put dead letters back into the queue.

    Their attempts count from the beginning.

    An ID is the ID of a dead letter, or of an order for all its dead letters.

    INGEST_BACKLOG_LIMIT does not apply. The orders keep all their fields and the time of their first announcement, and
    record how often and when they were replayed. If Redis is unavailable or out of memory, the command reports it and waits.
    If you interrupt or repeat it, no order is lost or put back twice.

    Without IDs, it is a job with a number, which continues if this process dies: see `ingest job --help`.

    The exit code is 1 if an ID has no dead letter. All others are put back.

    Examples:
    `ingest dead replay 536365 536366` puts two orders back into the queue. The IDs of their dead letters do the same.

    `ingest dead replay --reason not_found --since 2h` asks for confirmation if more than one dead letter matches.

    `ingest dead replay --shape "HTTP 422: order N is unknown"` puts a whole group of `ingest dead groups` back.

    `ingest dead replay --all --dry-run` counts them by reason, and changes nothing.

    `ingest dead replay --all --yes --json` replays all without a confirmation, and prints JSON.
    """
    from ingest.cli.queues.action import carry_out

    carry_out(JobKind.REPLAY, options)


@changing(EntryKind.DEAD_LETTERS)
def drop(options: Changing) -> None:
    """Delete dead letters permanently.

    An ID is the ID of a dead letter, or of an order for all its dead letters.

    Stored orders do not change. If Redis is unavailable, the command reports it and waits.

    The exit code is 1 if an ID has no dead letter. All others are deleted.

    Examples:
    `ingest dead drop 1763629200123-0` deletes one dead letter, by its ID as `ingest dead list` prints it.

    `ingest dead drop --until 30d` deletes dead letters that are more than 30 days old, after asking for confirmation.

    `ingest dead drop --reason rejected --dry-run` counts them, and changes nothing.

    `ingest dead export --output dead.jsonl && ingest dead drop --all --yes` keeps a copy.
    """
    from ingest.cli.queues.action import carry_out

    carry_out(JobKind.DROP, options)
