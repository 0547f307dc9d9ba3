"""Makes the results of written rows. Every change is reported at least once.

An unchanged row may have been changed by an earlier delivery of its entry, or by a statement whose reply was lost, without a result.
Such a row is reported as changed, so that a change may be reported twice.
"""

from collections.abc import Iterable, Iterator, Sequence

from ingest.domain.deliveries.delivery import Delivery, Effect
from ingest.domain.deliveries.result import Finished, Result, ResultKind
from ingest.flow.settle.rows import Item

_KINDS: dict[Effect, ResultKind] = {
    effect: ResultKind(effect.value) for effect in Effect if effect is not Effect.SUPPRESSED
}


def finished(items: Iterable[Item], effects: Sequence[Effect]) -> Iterator[tuple[Delivery, Finished]]:
    """Return the results of each item.

    Args:
        items: committed items.
        effects: the effects of their rows, in order.
    """
    at = 0
    for item in items:
        end = at + len(item.rows)
        yield item.delivery, Finished(item.delivery.entry, _results(item, effects[at:end]))
        at = end


def _results(item: Item, effects: Sequence[Effect]) -> tuple[Result, ...]:
    delivery = item.delivery
    announced = delivery.order_id or ""
    if not item.rows:
        return (Result(announced, ResultKind.SKIPPED),)
    return tuple(
        Result(row.order_id, _kind(effect, delivery), None if row.order_id == announced else announced)
        for row, effect in zip(item.rows, effects, strict=True)
    )


def _kind(effect: Effect, delivery: Delivery) -> ResultKind:
    is_certain = delivery.count == 1 and delivery.attempt == 1
    return _KINDS[Effect.CHANGED if effect is Effect.UNCHANGED and not is_certain else effect]
