"""The names of a queue's keys. Braces keep them in one Cluster slot."""

import msgspec

DEFAULT_GROUP = "ingest"


class LaneKeys(msgspec.Struct, frozen=True):
    """The keys of one of the two streams of a queue, see `Keys`.

    Attributes:
        repair: the entries of a lane under repair, until this stream takes the lane's place.
        suffix: goes after an entry ID if entries of both lanes are named together, and is empty for the main lane.
    """

    stream: str
    released: str
    settled: str
    waiting: str
    repair: str
    suffix: str


class Keys(msgspec.Struct, frozen=True):
    """The keys of one queue, and of one consumer group of it. Those that begin with `express_` are of the express lane.

    Attributes:
        stream: the entries of the main lane. They are deleted when acked, so that its length is the lane's backlog.
        express: the entries of the express lane, which are read first. It is created by its first user.
        clock: hash that keeps the queue's clock from going back.
        pushed: when the last document was accepted, in microseconds by that clock.
        records: prefix of the keys that remember completed steps: batches of a producer, moves of a consumer, pages of a
            replay or drop, steps of a job, newer versions of waiting orders.
        waiting: prefix, by order ID, of the records of the main lane's entries that are not to be announced twice while they wait.
        erased: sorted set of the orders that were erased, by the time (ms) of it, for all groups.
        probe: never exists, and is used to try commands.
        retry: the group's sorted set of entries that wait, by due time in ms.
        retry_entries: hash with the fields of those entries.
        retry_announced: sorted set of those entries by the time (ms) at which their order was first announced.
        dead: the group's dead-letter stream.
        dead_seen: hash with the counts of dead letters that are there already, see `_seen.lua`.
        dead_moved: hash with the identities of dead letters that a change of the partitions has moved here.
        results: the group's stream of the results of orders.
        alive: the group's sorted set of consumers by the time (ms) until which they count as alive.
        standing: the group's sorted set of consumers by the time (ms) from which they may reclaim from others.
        released: the group's sorted set of entries of the main lane that any consumer may claim immediately.
        settled: the group's sorted set of entries of the main lane that are finished, and kept for other groups.
        circuit: prefix, by consumer, of the group's keys with the reasons why a consumer does not work.
        troubles: the last report of a process about the troubles of partitions. Each partition has the same report.
        counts: prefix, by consumer, of the group's keys with the counts that a process reports, see `ProcessCounts`.
        minutes: prefix, by hour since 1970, of the group's hashes with the counts of each minute, see `minute_counts`.
        maintenance: hash with the consumer that leads the group's maintenance, until when, how far its sweep has come, and where it
            ends in each lane.
    """

    stream: str
    express: str
    clock: str
    pushed: str
    records: str
    waiting: str
    express_waiting: str
    erased: str
    probe: str
    retry: str
    retry_entries: str
    retry_announced: str
    dead: str
    dead_seen: str
    dead_moved: str
    results: str
    alive: str
    standing: str
    released: str
    express_released: str
    settled: str
    express_settled: str
    maintenance: str
    circuit: str
    troubles: str
    counts: str
    minutes: str

    @classmethod
    def of(cls, queue: str, group: str = DEFAULT_GROUP) -> "Keys":
        """The keys of the queue with that name, and of one of its groups."""
        base = f"ingest:{{{queue}}}"
        # The default group's retries, dead letters and results use the plain names.
        suffix = "" if group == DEFAULT_GROUP else f":{group}"
        return cls(
            stream=f"{base}:stream",
            express=f"{base}:express",
            clock=f"{base}:clock",
            pushed=f"{base}:pushed",
            records=f"{base}:receipt:",
            waiting=f"{base}:waiting:",
            express_waiting=f"{base}:express-waiting:",
            erased=f"{base}:erased",
            probe=f"{base}:probe",
            retry=f"{base}:retry{suffix}",
            retry_entries=f"{base}:retry-entries{suffix}",
            retry_announced=f"{base}:retry-announced{suffix}",
            dead=f"{base}:dead{suffix}",
            dead_seen=f"{base}:dead-seen{suffix}",
            dead_moved=f"{base}:dead-moved{suffix}",
            results=f"{base}:results{suffix}",
            alive=f"{base}:alive:{group}",
            standing=f"{base}:standing:{group}",
            released=f"{base}:released:{group}",
            express_released=f"{base}:express-released:{group}",
            settled=f"{base}:settled:{group}",
            express_settled=f"{base}:express-settled:{group}",
            circuit=f"{base}:circuit:{group}:",
            # Without a consumer, because users may write no further keys.
            troubles=f"{base}:circuit:{group}:",
            counts=f"{base}:counts:{group}:",
            minutes=f"{base}:minutes:{group}:",
            maintenance=f"{base}:maintenance:{group}",
        )

    def version_of(self, order_id: str) -> str:
        """The record of the newest version of an order that was announced while its entry waited."""
        return f"{self.records}version/{order_id}"

    @property
    def lanes(self) -> tuple[LaneKeys, LaneKeys]:
        """The express lane and the main one, in the order in which they are read."""
        return (
            LaneKeys(
                self.express,
                self.express_released,
                self.express_settled,
                self.express_waiting,
                f"{self.express}-repair",
                "/express",
            ),
            LaneKeys(self.stream, self.released, self.settled, self.waiting, f"{self.stream}-repair", ""),
        )
