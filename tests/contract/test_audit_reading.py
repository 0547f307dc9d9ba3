"""The list of manual changes from a real audit log."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from shipped import as_api
from support import connected

from ingest.domain.operating.audited_operation import AuditedOperation, AuditFilter, OperationState
from ingest.store.audit import AuditLog, Phase
from ingest.store.audit_reading import audited_operations
from ingest.store.connections.pool import Pool


@pytest.fixture
async def pool(dsn: str) -> AsyncIterator[Pool]:
    async with Pool.open(as_api(dsn), size=1) as pool:
        yield pool


async def record(pool: Pool, action: str, *phases: Phase, source: str = "", actor: str = "ada") -> None:
    operation = uuid4()
    for phase in phases:
        count = None if phase is Phase.BEGUN else 3
        await AuditLog(pool, source).add(operation, phase, actor, action, {"reason": "not_found"}, count)


async def actions(pool: Pool, selection: AuditFilter, limit: int = 100) -> list[str]:
    return [each.action for each in await audited_operations(pool, selection, limit)]


async def test_an_operation_is_listed_once_with_its_result(pool: Pool) -> None:
    await record(pool, "first", Phase.BEGUN, Phase.DONE)
    await record(pool, "second", Phase.BEGUN)
    await record(pool, "third", Phase.BEGUN, Phase.FAILED)
    # The first row could not be written.
    await record(pool, "fourth", Phase.DONE)

    found = await audited_operations(pool, AuditFilter(), 100)

    assert [(each.action, each.state, each.count) for each in found] == [
        ("fourth", OperationState.DONE, 3),
        ("third", OperationState.FAILED, 3),
        ("second", OperationState.UNFINISHED, None),
        ("first", OperationState.DONE, 3),
    ]
    assert (found[0].actor, found[0].selection) == ("ada", {"reason": "not_found"})
    assert [each.ended_at is None for each in found] == [False, False, True, False]


async def test_pages_follow_each_other_without_gaps_while_operations_are_added(pool: Pool) -> None:
    for number in range(5):
        await record(pool, str(number), Phase.BEGUN, Phase.DONE)

    found: list[AuditedOperation] = await audited_operations(pool, AuditFilter(), 2)
    await record(pool, "later", Phase.BEGUN, Phase.DONE)
    while page := await audited_operations(pool, AuditFilter(), 2, found[-1].number):
        found += page

    assert [each.action for each in found] == ["4", "3", "2", "1", "0"]


async def test_filters_select_by_source_actor_action_and_time(pool: Pool, dsn: str) -> None:
    await record(pool, "dead_letters.replay", Phase.BEGUN, Phase.DONE, source="shop-de")
    await record(pool, "dead_letters.drop", Phase.BEGUN, Phase.DONE, source="shop-fr", actor="cli:root")
    await record(pool, "pause", Phase.BEGUN, Phase.DONE)
    async with connected(dsn) as connection:
        await connection.execute("UPDATE audit_log SET at = at - interval '1 day' WHERE action = 'pause'")
    yesterday = datetime.now(UTC) - timedelta(hours=1)

    assert await actions(pool, AuditFilter(sources=["shop-de"])) == ["dead_letters.replay"]
    assert await actions(pool, AuditFilter(actor="cli:root")) == ["dead_letters.drop"]
    assert await actions(pool, AuditFilter(action="dead_letters.")) == ["dead_letters.drop", "dead_letters.replay"]
    assert await actions(pool, AuditFilter(action="dead_letters")) == []
    assert await actions(pool, AuditFilter(until=yesterday)) == ["pause"]
    assert await actions(pool, AuditFilter(since=yesterday)) == ["dead_letters.drop", "dead_letters.replay"]
