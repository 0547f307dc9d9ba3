"""Replaces all workers under load, one by one, with workers of the other release: `make rolling`.

The queue is never empty during the replacement, so that the orders stored in each second show the capacity of the
running workers. At the end, each order has to be stored with the correct document.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from releases import kept
from support import eventually_sync

from ingest.bench.machine import Machine
from ingest.bench.stage import Stage, stage
from ingest.bench.trial import report_progress
from ingest.lab.commands import Command
from ingest.operations.backends import Backends
from ingest.operations.reconcile import reconcile
from ingest.queue.produce.producer import Producer
from ingest.store.schema import migrate, migrations

STOP_SECONDS = 60.0
# Seconds of work in the queue below which more orders are announced.
_LEAST_QUEUED, _ADDED = 10.0, 15.0
RELEASES = {"last": kept.version(), "this": "the checkout"}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run.

    Attributes:
        workers: `ingest worker` commands, each with one process.
        at_once: workers that are replaced at the same time.
        concurrency: orders in flight in each worker.
        latency: minimum and maximum latency of the external API in seconds.
        calm: seconds before the replacement for the comparison.
        pause: seconds between two replacements, after the new worker runs.
        least: minimum throughput in each second as a share of the throughput before.
    """

    workers: int = 10
    at_once: int = 1
    concurrency: int = 10
    latency: tuple[float, float] = (0.1, 0.2)
    calm: float = 15.0
    pause: float = 1.0
    least: float = 0.7

    @property
    def ideal(self) -> float:
        """Orders per second if only the external API limits them."""
        return self.workers * self.concurrency / (sum(self.latency) / 2)


@dataclass(frozen=True, slots=True)
class Found:
    """The results of a run.

    Attributes:
        before: orders per second before the first replacement.
        seconds: orders stored in each second of the replacement, from the first stop until the last new worker runs.
        by_release: orders stored by each release.
        lost: announced orders that were not found anywhere.
        wrong: rows that differ from their documents.
        exit_codes: exit codes of the stopped workers.
        had_work: whether orders were queued until the last worker was replaced.
    """

    before: float
    seconds: Sequence[int]
    by_release: dict[str, int]
    lost: int
    wrong: int
    exit_codes: Sequence[int | None]
    had_work: bool

    @property
    def lowest(self) -> float:
        """The lowest throughput in a second as a share of the throughput before."""
        return min(self.seconds) / self.before

    def complaints(self, least: float) -> list[str]:
        """The violations."""
        checks = {
            f"{self.lost} orders are lost": self.lost,
            f"{self.wrong} orders are wrong": self.wrong,
            f"a second had {self.lowest:.0%} of the throughput, less than {least:.0%}": self.lowest < least,
            f"workers ended with {self.exit_codes}": any(code != 0 for code in self.exit_codes),
            "the queue was empty before the last replacement": not self.had_work,
            "one release has stored nothing": len(self.by_release) < len(RELEASES),
        }
        return [text for text, is_so in checks.items() if is_so]


class Rolling:
    """One run on a separate stage."""

    def __init__(self, on: Stage, options: Options) -> None:
        self._on = on
        self._options = options
        self._variables = {"last": kept.unpack(on.home / "last-release"), "this": {}}
        self._running: list[Command] = []
        self._started = 0
        self._exit_codes: list[int | None] = []
        self._announced: list[str] = []

    def play(self) -> Found:
        """Do it all."""
        self._prepare()
        self._keep_busy()
        for _ in range(self._options.workers):
            self._start("last")
        self._all_live()
        self._sleep("warming up", self._options.calm / 3)
        calm_from = self._now()
        self._sleep("measuring before the replacement", self._options.calm)
        began = self._now()
        self._replace_all()
        ended, had_work = self._now(), self._on.queued()[0] > 0
        report_progress("storing the rest")
        eventually_sync(lambda: self._on.queued() == (0, 0), within=600.0, every=0.5)
        for command in self._running:
            self._stop(command)
        return self._found(calm_from, range(began, ended), had_work=had_work)

    def _prepare(self) -> None:
        on, options = self._on, self._options
        api = on.api("--latency", "-".join(map(str, options.latency)))
        on.commands.configure(
            {"INGEST_UPSTREAM_URL": api.url, "INGEST_PROCESSES": "1", "INGEST_CONCURRENCY": str(options.concurrency)}
        )
        # A user's own column, which both releases ignore, shows which release has stored a row.
        on.sql("ALTER TABLE orders ADD COLUMN stored_by text DEFAULT current_setting('application_name')")

    def _keep_busy(self) -> None:
        """Announce more orders, if those that are queued are soon done."""
        if self._on.queued()[0] < _LEAST_QUEUED * self._options.ideal:
            more = [f"order-{len(self._announced) + number}" for number in range(int(_ADDED * self._options.ideal))]
            asyncio.run(self._enqueue(more))
            self._announced += more

    async def _enqueue(self, more: Sequence[str]) -> None:
        async with Producer.connect(self._on.redis_url, self._on.stream) as producer:
            await producer.enqueue(more)

    def _found(self, calm_from: int, replacing: range, *, had_work: bool) -> Found:
        on = self._on
        each = "SELECT floor(extract(epoch FROM ingested_at))::bigint, count(*) FROM orders GROUP BY 1"
        stored = dict(on.sql(each))
        calm = range(calm_from, replacing.start)
        account = asyncio.run(
            reconcile(self._announced, Backends(on.redis_url, on.postgres_dsn, on.stream, "ingest"), complete=True)
        )
        return Found(
            before=sum(stored.get(second, 0) for second in calm) / len(calm),
            seconds=[stored.get(second, 0) for second in replacing],
            by_release=dict(on.sql("SELECT stored_by, count(*) FROM orders GROUP BY 1")),
            lost=account.lost.count,
            wrong=account.wrong.count,
            exit_codes=self._exit_codes,
            had_work=had_work,
        )

    def _replace_all(self) -> None:
        old, at_once = list(self._running), self._options.at_once
        for number in range(0, len(old), at_once):
            batch = old[number : number + at_once]
            for command in batch:
                self._running.remove(command)
                self._stop(command)
            for _ in batch:
                self._start("this")
            self._all_live()
            report_progress(f"{number + len(batch)} of {len(old)} workers are replaced")
            self._sleep("pause", self._options.pause)

    def _start(self, release: str) -> None:
        self._started += 1
        on = self._on
        dsn = f"{on.postgres_dsn}{'&' if '?' in on.postgres_dsn else '?'}application_name={release}"
        self._running.append(
            Command(
                "worker",
                home=on.commands.home,
                log=on.commands.home / f"worker-{self._started}-{release}.log",
                watchdog=on.commands.watchdog,
                environment={**self._variables[release], "INGEST_POSTGRES_DSN": dsn},
            )
        )

    def _stop(self, command: Command) -> None:
        self._exit_codes.append(command.stop(STOP_SECONDS))

    def _all_live(self) -> None:
        alive = self._on.keys().alive

        def all_live() -> bool:
            self._keep_busy()
            return bool(self._on.redis.zcard(alive) == len(self._running))

        eventually_sync(all_live, within=120.0, every=0.05)

    def _now(self) -> int:
        [(now,)] = self._on.sql("SELECT ceil(extract(epoch FROM clock_timestamp()))::bigint")
        return int(now)

    def _sleep(self, what: str, seconds: float) -> None:
        report_progress(f"{what}, {seconds:g} s")
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._keep_busy()
            time.sleep(min(left, 1.0))  # measures a time span, so that there is no condition to wait for

    def close(self) -> None:
        """Kill the workers that still run."""
        for command in self._running:
            command.kill()


def run(options: Options) -> Found:
    """Set the stage, and play."""
    with stage() as on:
        # As after an upgrade, so that workers of both releases can store orders.
        asyncio.run(migrate(on.postgres_dsn, migrations()[: kept.last_migration()]))
        on.migrate()
        with closing(Rolling(on, options)) as rolling:
            return rolling.play()


def table(found: Found) -> str:
    """The throughput in each second of the replacement, with a summary."""
    lines = ["second  orders/s  of before"]
    lines += [f"{number:6}  {count:8,}  {count / found.before:8.0%}" for number, count in enumerate(found.seconds, 1)]
    by_release = ", ".join(f"{RELEASES[name]} {count:,}" for name, count in sorted(found.by_release.items()))
    mean = sum(found.seconds) / len(found.seconds) / found.before
    lines.append(f"before: {found.before:,.0f} orders/s; lowest second: {found.lowest:.0%}; mean: {mean:.0%}")
    lines.append(f"stored by {by_release}; lost {found.lost}, wrong {found.wrong}")
    return "\n".join(lines)


def main() -> int:
    """The command."""
    default = Options()
    parser = argparse.ArgumentParser(prog="make rolling", description=__doc__)
    parser.add_argument("--workers", type=int, default=default.workers)
    parser.add_argument("--at-once", type=int, default=default.at_once, help="workers replaced at the same time")
    parser.add_argument("--concurrency", type=int, default=default.concurrency, help="orders in flight in each")
    parser.add_argument("--calm", type=float, default=default.calm, help="seconds measured before the replacement")
    parser.add_argument("--pause", type=float, default=default.pause, help="seconds between two replacements")
    options = Options(**vars(parser.parse_args()))
    machine = Machine.here()
    found = run(options)
    sys.stdout.write(f"{table(found)}\n{machine.sentence()}\n")
    complaints = found.complaints(options.least)
    for complaint in complaints:
        report_progress(f"rolling: {complaint}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
