"""Checks the state after a run: the reconciliation, PostgreSQL, Redis, the API and the logs."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import asyncpg

from chaos.producer import WIDE, Orders
from chaos.stage import GROUP, Shop, Stage
from ingest.domain.deliveries.accepted import Durability
from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.orders.order import InvalidOrderId, parse_order_id
from ingest.operations.reconcile import Backends, ReconciliationReport, reconcile
from ingest.queue.redis.connection import control_client

_MOST_SHOWN = 20
# PostgreSQL itself writes down each change of a row, in the transaction that makes it.
WITNESS = """
CREATE TABLE witness (source text, order_id text, version timestamptz, before timestamptz, at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO witness (source, order_id, version, before)
    VALUES (NEW.source, NEW.order_id, NEW.version, CASE TG_OP WHEN 'UPDATE' THEN OLD.version END);
    RETURN NULL;
END $$;
CREATE TRIGGER witness AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION witness();
-- A later fetch of the same content moves the row's time alone, and not that of its change.
CREATE TRIGGER witness_change AFTER UPDATE ON orders FOR EACH ROW
    WHEN (old.ingested_at IS DISTINCT FROM new.ingested_at OR new.version < old.version) EXECUTE FUNCTION witness();
"""


@dataclass(frozen=True, slots=True)
class ShopFindings:
    """The results of the check of one source.

    Attributes:
        account: the reconciliation of all its orders.
        unreplicated: orders of entries that a failover has lost before they were replicated.
        lost_by_replication: which of these are lost, or stored in an earlier version.
        lost: orders that are lost although they were replicated.
        wrong: orders that are wrong although they were replicated.
        dead_lettered_twice: orders with more than one dead letter, although failed orders are not announced again.
        nameless: dead letters of entries without an order, with their expected minimum and maximum.
        went_back: rows that an older version has replaced.
        written_often: orders that were written more often than they have versions.
        requests: requests at the API.
        answers: responses by status.
        fetched_again: whole orders that the API sent in addition to one for each announcement.
    """

    account: ReconciliationReport
    unreplicated: list[str]
    lost_by_replication: list[str]
    lost: list[str]
    wrong: list[str]
    dead_lettered_twice: list[str]
    nameless: tuple[int, int, int]
    went_back: list[str]
    written_often: list[str]
    requests: int
    answers: dict[str, int]
    fetched_again: int

    @property
    def complaints(self) -> list[str]:
        """A line for each violation, or an empty list."""
        account, letters = self.account, self.account.dead_letters
        dead_lettered, least, most = self.nameless
        checks = {
            f"{len(self.lost)} orders are lost: {_first(self.lost)}": self.lost,
            f"{len(self.wrong)} orders are wrong: {_first(self.wrong)}": self.wrong,
            f"{account.wrong.count} orders are wrong, more than are listed": account.wrong.count
            > len(account.wrong.examples),
            f"{account.unexpected.count} unexpected orders: {account.unexpected}": account.unexpected.count,
            f"{account.both} orders are stored and dead": account.both,
            f"{account.queued} orders are still queued": account.queued,
            "the queue is not empty": not account.is_settled,
            **{
                f"{letters[reason]} dead letters for {reason}, which only an outage can have caused": letters[reason]
                for reason in (DeadReason.ATTEMPTS_EXHAUSTED, DeadReason.MAX_DELIVERIES, DeadReason.REJECTED)
                if reason in letters
            },
            f"dead letters that should be one each: {_first(self.dead_lettered_twice)}": self.dead_lettered_twice,
            f"{dead_lettered} dead letters for invalid_message, not {least} to {most}": not least
            <= dead_lettered
            <= most,
            f"an older version replaced a newer one: {_first(self.went_back)}": self.went_back,
            f"written more often than there are versions: {_first(self.written_often)}": self.written_often,
        }
        return [text for text, found in checks.items() if found]


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of the check.

    Attributes:
        shops: the results for each source.
        elsewhere: rows of sources that do not exist.
        redeliveries: reclaimed entries by reason.
        events: the workers' log by event.
        bugs: tracebacks and failed deliveries in the log.
    """

    shops: dict[str, ShopFindings]
    elsewhere: int
    redeliveries: dict[str, int]
    events: dict[str, int]
    bugs: list[str]

    @property
    def complaints(self) -> list[str]:
        """A line for each violation, or an empty list for a sound run."""
        lines = [f"{name}: {line}" if name else line for name, shop in self.shops.items() for line in shop.complaints]
        if self.elsewhere:
            lines.append(f"{self.elsewhere} rows of other sources")
        if self.bugs:
            lines.append(f"bugs in the log: {_first(self.bugs)}")
        return lines

    @property
    def answers(self) -> Counter[str]:
        """The responses of all APIs by status."""
        return sum((Counter(shop.answers) for shop in self.shops.values()), Counter())


async def prepare(dsn: str) -> None:
    """Let PostgreSQL bear witness."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(WITNESS)
    finally:
        await connection.close()


async def find(stage: Stage, orders: Mapping[str, Orders], durability: Durability) -> Findings:
    """Check everything after the workers have ended."""
    shops = {shop.name: await _find_in(stage, shop, orders[shop.name], durability) for shop in stage.shops}
    events = list(stage.events())
    return Findings(
        shops=shops,
        elsewhere=await _elsewhere(stage.postgres.dsn, list(shops)),
        redeliveries=_redeliveries(events),
        events=dict(Counter(event["event"] for event in events).most_common()),
        bugs=[_bug(event) for event in events if _is_bug(event)],
    )


async def _find_in(stage: Stage, shop: Shop, orders: Orders, durability: Durability) -> ShopFindings:
    dsn, url = stage.postgres.dsn, stage.redis.straight_url
    unreplicated = [_order_id(entry.order) for keys in shop.partitions for entry in stage.written.lost[keys.stream]]
    unreplicated += [_order_id(entry.order) for keys in shop.partitions for entry in stage.written.lost[keys.express]]
    # A replica had every order of our producer before it was confirmed, unlike the entries of foreign producers.
    excused = {name for name in unreplicated if durability != Durability.REPLICATED or name.startswith(WIDE)}
    lost = list[str]()
    account = await reconcile(
        orders.accepted,
        Backends(url, dsn, shop.layout.queue, GROUP, shop.name),
        unconfirmed=orders.unconfirmed,
        expected=orders.expected,
        complete=True,
        on_lost=lost.append,
    )
    wrong = set(account.wrong.examples)
    letters = await _letters(url, shop)
    certain, perhaps = orders.nameless
    writes = await _writes(dsn, shop)
    stats = await shop.api.stats()
    announcements = account.stored + account.arrived + sum(orders.versions.values()) - len(orders.versions)
    return ShopFindings(
        account=account,
        unreplicated=sorted(filter(None, unreplicated)),
        lost_by_replication=sorted(excused & {*lost, *wrong}),
        lost=sorted({*lost} - excused),
        wrong=sorted(wrong - excused),
        dead_lettered_twice=sorted(name for name, count in letters.items() if name and count > 1),
        nameless=(letters[""], certain - unreplicated.count(""), certain + perhaps),
        went_back=sorted(row["order_id"] for row in writes if row["went_back"]),
        written_often=sorted(
            f"{row['order_id']} ({row['count']})"
            for row in writes
            if row["count"] > orders.versions.get(row["order_id"], 1)
        ),
        requests=stats["requests"],
        answers=stats["by_status"],
        fetched_again=max(0, stats["by_status"].get("200", 0) - announcements),
    )


async def _letters(redis_url: str, shop: Shop) -> Counter[str]:
    """Dead letters by order, with the empty text for dead letters without an order."""
    async with control_client(redis_url) as client:
        letters: Any = [letter for keys in shop.partitions for letter in await client.xrange(keys.dead)]
    return Counter(_order_id(fields.get(b"order_id", b"").decode(errors="replace")) for _, fields in letters)


def _order_id(text: str) -> str:
    try:
        return parse_order_id(text)
    except InvalidOrderId:
        return ""


async def _writes(dsn: str, shop: Shop) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetch(
            "SELECT order_id, count(*), bool_or(before > version) AS went_back FROM witness WHERE source = $1"
            " GROUP BY order_id",
            shop.name,
        )
    finally:
        await connection.close()


async def _elsewhere(dsn: str, sources: list[str]) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return int(await connection.fetchval("SELECT count(*) FROM orders WHERE source <> ALL ($1)", sources))
    finally:
        await connection.close()


def _redeliveries(events: list[dict[str, Any]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for event in events:
        if event["event"] == "entries_reclaimed":
            total[event["reason"]] += event["entries"]
    return dict(total)


def _is_bug(event: dict[str, Any]) -> bool:
    if event["event"] == "unreadable":
        # A line may be incomplete after a kill, in contrast to a traceback.
        return "Traceback" in event["line"]
    return event["event"] in {"delivery_failed", "refused"} or "exception" in event


def _bug(event: dict[str, Any]) -> str:
    last = str(event.get("exception") or event.get("problem") or event.get("line")).strip().splitlines()[-1:]
    return f"{event['log']}: {event['event']}: {' '.join(last)}"


def _first(names: list[str]) -> str:
    more = len(names) - _MOST_SHOWN
    return ", ".join(names[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
