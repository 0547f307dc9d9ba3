"""A right that our own account lacks is a configuration error: it is logged once with its object, and no order is lost or blamed."""

import pytest
from integration.scene import Scene, ids
from structlog.testing import capture_logs
from support import eventually


@pytest.mark.parametrize(
    ("right", "table"),
    [
        ("INSERT, UPDATE ON orders", "orders"),
        ("SELECT ON erased_orders", "erased_orders"),
        ("INSERT ON order_history", "order_history"),
    ],
)
async def test_orders_wait_for_a_right_in_postgresql_and_are_then_stored(scene: Scene, right: str, table: str) -> None:
    await scene.sql(f"REVOKE {right} FROM ingest")

    with capture_logs() as logs:
        async with scene.worker(history="1h", max_attempts=1) as worker:
            await scene.enqueue(*ids(5))
            await eventually(lambda: [log for log in logs if log["event"] == "access_denied"])
            waiting, dead = await scene.stored(), await scene.dead()
            await scene.sql(f"GRANT {right} TO ingest")
            await scene.stored_at_least(5)
            await scene.finished()
            await eventually(lambda: [log for log in logs if log["event"] == "access_granted"])
            await worker.stop()

    denied = [log for log in logs if log["event"] in {"access_denied", "unavailable"}]
    assert (waiting, dead) == (0, [])
    assert [(log["event"], log["log_level"], log["server"]) for log in denied] == [
        ("access_denied", "error", "postgres")
    ]
    assert (
        f"permission denied for table {table}; as the owner of the tables, run `ingest migrate`" in denied[0]["error"]
    )
    assert await scene.dead() == []
    assert {row["attempts"] for row in (await scene.rows()).values()} == {1}
