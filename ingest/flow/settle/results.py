"""Makes the results of written rows. Every change is reported at least once.

An unchanged row may have been changed by an earlier delivery of its entry, or by a statement whose reply was lost, without a result.
Such a row is reported as changed, so that a change may be reported twice.
"""

from collections.abc import Sequence

from ingest.domain.deliveries.delivery import Delivery, Effect
from ingest.domain.deliveries.result import Finished, Result, ResultKind
from ingest.flow.settle.rows import Item

_KINDS: dict[Effect, ResultKind] = {
    effect: ResultKind(effect.value) for effect in Effect if effect is not Effect.SUPPRESSED
}


def finished(item: Item, effects: Sequence[Effect]) -> Finished:
    """Return the results of a committed item, by the effects of its rows."""
    delivery = item.delivery
    announced = delivery.order_id or ""
    results = [
        Result(row.order_id, _kind(effect, delivery), None if row.order_id == announced else announced)
        for row, effect in zip(item.rows, effects, strict=True)
    ]
    return Finished(delivery.entry, tuple(results) or (Result(announced, ResultKind.SKIPPED),))


def _kind(effect: Effect, delivery: Delivery) -> ResultKind:
    is_certain = delivery.count == 1 and delivery.attempt == 1
    return _KINDS[Effect.CHANGED if effect is Effect.UNCHANGED and not is_certain else effect]
