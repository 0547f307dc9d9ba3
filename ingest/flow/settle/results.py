"""Makes results of what was written, so that no change stays unknown to those who read them.

A row that is found unchanged may have been changed by an earlier delivery of its entry, or by a statement whose reply was lost, of
which nobody has been told. Such a row is reported as changed: a change may be reported twice, but never not at all.
"""

from collections.abc import Iterable, Iterator, Sequence

from ingest.domain.deliveries.delivery import Delivery, Effect
from ingest.domain.deliveries.result import Finished, Result, ResultKind
from ingest.flow.settle.rows import Item

_KINDS: dict[Effect, ResultKind] = {
    effect: ResultKind(effect.value) for effect in Effect if effect is not Effect.SUPPRESSED
}


def finished(items: Iterable[Item], effects: Sequence[Effect]) -> Iterator[tuple[Delivery, Finished]]:
    """What is to be told of each item.

    Args:
        items: what was committed.
        effects: what each of their rows did, in their order.
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
