"""Notes for readers of the figures."""

from ingest.bench.patterns.plan import Pattern, Plan

_PUBLISHED = (
    "Published figures are from a well-known comparison of the five patterns with 10,000 orders on 8 cores. There, an "
    "order is a simulated API call of 0.2 s and simulated processing of 0.1 s. Here, both are one wait for the API, "
    "and orders are really stored. The published figures are a reference and not a basis for ratios."
)
_TIME = (
    "Time is from the start of the first process to the commit of the last row, with queues filled before. 'At least' "
    "is the time on an infinitely fast machine, which is latency times orders divided by the pattern's maximum in "
    "flight."
)
_USAGE = (
    "Memory (proportional set size) and CPU cover the pattern's own processes, without Redis, PostgreSQL and the API. "
    "Errors are orders without a row at the end."
)
_GATHER = (
    "'gather, no bound' runs without aiohttp's limit of 100 connections, with which it would be the second pattern "
    "with more waiting tasks. The limit of open files is raised for all."
)
_IMPLAUSIBLE = (
    "With 8 and with 20 orders in flight, 10,000 waits of 0.3 s take at least 375 s and 150 s. Therefore, the "
    "published times of these two patterns cannot be for one such wait per order and slot."
)
_LOST = (
    "Lost orders do not have a row, and the same program, kept running or restarted, would not take them from a "
    "queue. A killed process of the naive Redis Streams workers was replaced, as by a supervisor. A program that "
    "ended with its process was not restarted, because it would begin again with all orders, including stored ones."
)


def notes_of(plan: Plan) -> list[str]:
    """Notes of one or two sentences each."""
    job = (
        "All patterns do the same job on the same servers, in sequence. They send a request to the simulated API, "
        f"which responds after {plan.latency:g} s, decode and check the response, and store a row in a real PostgreSQL."
    )
    throttled = (
        f"The API responds with 429 to more than {plan.throttle:,} concurrent requests. The patterns do not try again, "
        "as in their usual form, and the service waits for the time in Retry-After."
    )
    return [
        job,
        _PUBLISHED,
        *([_IMPLAUSIBLE] if {Pattern.PROCESSES, Pattern.STREAMS} <= set(plan.patterns) else []),
        _TIME,
        _USAGE,
        *([_GATHER] if Pattern.GATHER in plan.patterns else []),
        *([throttled] if plan.throttle else []),
        *([_LOST] if plan.kill else []),
    ]
