"""Notes for the reader of the figures."""

from ingest.bench.patterns.plan import Pattern, Plan

_PUBLISHED = (
    "Published figures are those of a well-known comparison of the five patterns: 10,000 orders, 8 cores, its own set-up. There "
    "an order is a simulated API call of 0.2 s and simulated processing of 0.1 s; here both are one wait for the API, and what "
    "is stored is stored. They are a reference, not a basis for ratios."
)
_TIME = (
    "Time is from the start of the first process to the commit of the last row; queues are filled before. 'At least' is the "
    "latency times the orders over the most that the pattern has in flight: an infinitely fast machine would need that long."
)
_USAGE = (
    "Memory (proportional set size) and CPU are those of the pattern's own processes, without Redis, PostgreSQL and the API. "
    "Errors are orders without a row in the end."
)
_GATHER = (
    "'gather, no bound' has aiohttp's own limit of 100 connections lifted; with it, it would be the second pattern with more "
    "tasks waiting. The limit of open files is raised for all."
)
_DOUBT = (
    "With 8 and with 20 orders in flight, 10,000 waits of 0.3 s take at least 375 s and 150 s: the published times of these two "
    "patterns cannot be those of one such wait per order at a time."
)
_LOST = (
    "Lost are orders that have no row, and that the same program, left running or started again, would not take from a "
    "queue. A process of the naive Redis Streams workers was started in the place of the killed one, as a supervisor would; a "
    "program that ended with its process was not, as it would begin again with all orders, those stored included."
)


def notes_of(plan: Plan) -> list[str]:
    """One or two sentences each."""
    job = (
        f"The same job for all: one request to the simulated API, which answers after {plan.latency:g} s; its answer decoded and "
        "checked; one row of a real PostgreSQL. The same servers for all, one pattern after the other."
    )
    throttled = (
        f"The API answers 429 to what would be more than {plan.throttle:,} requests at a time. The patterns, as they are "
        "usually shown, do not try again; the service waits as told."
    )
    return [
        job,
        _PUBLISHED,
        *([_DOUBT] if {Pattern.PROCESSES, Pattern.STREAMS} <= set(plan.patterns) else []),
        _TIME,
        _USAGE,
        *([_GATHER] if Pattern.GATHER in plan.patterns else []),
        *([throttled] if plan.throttle else []),
        *([_LOST] if plan.kill else []),
    ]
