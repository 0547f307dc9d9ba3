"""Operations over HTTP: the queue, its consumers, retries and dead letters. Changes are counted and audited."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from dead_letter_entries import dead_fields
from http_api import NOWHERE, Api, Key, running_api
from integration.scene import Scene

from ingest.domain.deliveries.delivery import RetryReason
from ingest.domain.source_name import queue_of
from ingest.queue.layout.keys import Keys

OPERATOR = Key("operator")


@pytest.fixture
async def api(scene: Scene) -> AsyncIterator[Api]:
    async with running_api(scene.redis_url, scene.dsn, scene.queue, OPERATOR) as api:
        yield api


async def let_wait(scene: Scene, *order_ids: str, reason: RetryReason = RetryReason.TIMEOUT) -> None:
    await scene.enqueue(*order_ids)
    async with scene.consumer("w") as consumer:
        for number, delivery in enumerate(await consumer.read(len(order_ids), 1.0)):
            await consumer.reschedule(delivery, 3_600.0 + number, 2, reason, "no answer within 5 s")


async def dead_letter(scene: Scene, *order_ids: str, **fields: Any) -> list[str]:
    return [(await scene.redis.xadd(scene.keys.dead, dead_fields(each, **fields))).decode() for each in order_ids]  # type: ignore[arg-type]


async def audit(scene: Scene) -> list[tuple[Any, ...]]:
    rows = await scene.sql("SELECT phase, actor, action, selection->'ids' AS ids, count FROM audit_log ORDER BY id")
    return [tuple(row) for row in rows]


async def test_the_queue_and_its_consumers_are_shown(scene: Scene, api: Api) -> None:
    await scene.enqueue("a", "b")
    async with scene.consumer("w-1") as one, scene.consumer("w-2") as two:
        await one.heartbeat(60.0)
        await two.heartbeat(60.0)
        await one.read(1, 1.0)
        status, queue = await api.get("/v1/queue")
        consumers = await api.pages("/v1/queue/consumers?limit=1", "consumers")

    assert status == 200
    assert (queue["depth"], queue["pending"], queue["retries"], queue["dead"]) == (1, 1, 0, 0)
    assert queue["lanes"]["main"]["depth"] == 1
    assert [[each["name"] for each in page] for page in consumers] == [["w-1"], ["w-2"]]
    assert (consumers[0][0]["state"], consumers[0][0]["pending"]) == ("alive", 1)


# -- retries ------------------------------------------------------------------------------------------------------


async def test_retries_are_listed_in_pages_and_filtered(scene: Scene, api: Api) -> None:
    await let_wait(scene, "a", "b", "c")
    await let_wait(scene, "d", reason=RetryReason.CONNECTION)

    found = await api.pages("/v1/retries?limit=2", "retries")
    filtered = await api.pages("/v1/retries?reason=connection&order_id=a&order_id=d", "retries")

    listed = [each for page in found for each in page]
    assert sorted(each["order_id"] for each in listed) == ["a", "b", "c", "d"]
    assert [each["next_try_at"] for each in listed] == sorted(each["next_try_at"] for each in listed)
    assert listed[0]["error"] == "no answer within 5 s"
    assert [each["order_id"] for page in filtered for each in page] == ["d"]


async def test_retries_are_run_now_and_dead_lettered(scene: Scene, api: Api) -> None:
    await let_wait(scene, "a", "b", "c")

    dry = await api.post("/v1/retries/run-now", json={"ids": ["a"], "dry_run": True})
    run = await api.post("/v1/retries/run-now", json={"ids": ["a"]})
    moved = await api.post("/v1/retries/dead-letter", json={"everything": True})

    assert dry == (200, {"dry_run": True, "count": 1, "missing_partitions": [], "reasons": {"timeout": 1}})
    assert (run, moved) == (
        (200, {"dry_run": False, "count": 1, "missing_partitions": []}),
        (200, {"dry_run": False, "count": 3, "missing_partitions": []}),
    )
    assert [letter["worker"] for letter in await scene.dead()] == ["operator"] * 3
    assert await audit(scene) == [
        ("begun", "operator", "retries.run_now", '["a"]', None),
        ("done", "operator", "retries.run_now", '["a"]', 1),
        ("begun", "operator", "retries.dead_letter", "[]", None),
        ("done", "operator", "retries.dead_letter", "[]", 3),
    ]


# -- dead letters -------------------------------------------------------------------------------------------------


async def test_dead_letters_are_listed_in_pages_the_newest_first_without_their_documents(
    scene: Scene, api: Api
) -> None:
    entry_ids = await dead_letter(scene, *(f"o-{number}" for number in range(25)), document="x" * 1000)
    await dead_letter(scene, "other", reason="rejected")

    found = await api.pages("/v1/dead-letters?limit=10", "dead_letters")
    filtered = await api.pages("/v1/dead-letters?limit=10&reason=not_found&id=o-3&id=other", "dead_letters")

    assert [each["order_id"] for page in found for each in page] == ["other", *(f"o-{n}" for n in range(24, -1, -1))]
    assert "xxx" not in str(found)
    assert [(each["id"], each["reason"]) for page in filtered for each in page] == [(entry_ids[3], "not_found")]


async def test_one_dead_letter_is_shown_with_all_its_fields(scene: Scene, api: Api) -> None:
    [entry_id] = await dead_letter(scene, "a", document="{}", tenant="x")

    status, found = await api.get(f"/v1/dead-letters/{entry_id}")

    assert (status, found["order_id"], found["fields"]) == (200, "a", {"document": "{}", "tenant": "x"})
    for other in ("1-0", "a", "%00", "-", "9" * 70):
        assert (await api.get(f"/v1/dead-letters/{other}"))[0] == 404


async def test_dead_letters_are_replayed_and_dropped(scene: Scene, api: Api) -> None:
    await dead_letter(scene, "a", "b", "c")
    await dead_letter(scene, "d", reason="rejected")

    dry = await api.post("/v1/dead-letters/replay", json={"reasons": ["not_found"], "dry_run": True})
    replayed = await api.post("/v1/dead-letters/replay", json={"ids": ["a", "b", "nobody"]})
    dropped = await api.post("/v1/dead-letters/drop", json={"everything": True})

    assert dry == (200, {"dry_run": True, "count": 3, "missing_partitions": [], "reasons": {"not_found": 3}})
    assert replayed == (200, {"dry_run": False, "count": 2, "missing_partitions": [], "gone": 0})
    assert dropped == (200, {"dry_run": False, "count": 2, "missing_partitions": [], "gone": 0})
    assert [(await scene.state()).depth, await scene.dead()] == [2, []]
    assert await audit(scene) == [
        ("begun", "operator", "dead_letters.replay", '["a", "b", "nobody"]', None),
        ("done", "operator", "dead_letters.replay", '["a", "b", "nobody"]', 2),
        ("begun", "operator", "dead_letters.drop", "[]", None),
        ("done", "operator", "dead_letters.drop", "[]", 2),
    ]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{}", 422),
        (b'{"ids": []}', 422),
        (b'{"ids": ["a"], "everything": true}', 422),
        (b'{"everything": "yes"}', 422),
        (b'{"all": true}', 422),
        (b'{"ids": ["\\u0000"]}', 422),
        (b"[]", 422),
        (b"{", 400),
        (b"", 400),
        (b'{"ids": [' + b"[" * 100_000, 422),
        (b"\xff", 400),
    ],
)
async def test_everything_is_never_selected_by_mistake(scene: Scene, api: Api, body: bytes, status: int) -> None:
    await dead_letter(scene, "a")
    await let_wait(scene, "b")

    paths = ("/v1/retries/dead-letter", "/v1/dead-letters/drop")
    answered = [await api.post(path, data=body, headers={"Content-Type": "application/json"}) for path in paths]

    assert [answer[0] for answer in answered] == [status, status]
    assert (len(await scene.dead()), await scene.redis.zcard(scene.keys.retry)) == (1, 1)
    assert await audit(scene) == []


async def test_a_change_that_cannot_be_recorded_is_not_made(scene: Scene) -> None:
    await dead_letter(scene, "a")
    async with running_api(scene.redis_url, NOWHERE, scene.queue, OPERATOR) as api:
        status, problem = await api.post("/v1/dead-letters/drop", json={"everything": True})

    assert (status, problem["code"]) == (503, "store_unavailable")
    assert len(await scene.dead()) == 1


@pytest.mark.parametrize(("phase", "answered", "left"), [("begun", 503, 1), ("done", 200, 0)])
async def test_an_audit_log_that_refuses_rows_is_no_fault_of_the_request(
    scene: Scene, api: Api, phase: str, answered: int, left: int
) -> None:
    await dead_letter(scene, "a")
    await scene.sql("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'full'; END $$")
    await scene.sql(
        "CREATE TRIGGER refuses BEFORE INSERT ON audit_log FOR EACH ROW"
        f" WHEN (NEW.phase = '{phase}') EXECUTE FUNCTION refuse()"
    )

    status, _ = await api.post("/v1/dead-letters/drop", json={"everything": True})

    assert (status, len(await scene.dead())) == (answered, left)


async def test_without_redis_every_answer_is_503_and_the_audit_log_says_what_failed(scene: Scene) -> None:
    async with running_api("redis://127.0.0.1:1/0", scene.dsn, scene.queue, OPERATOR) as api:
        answers = [
            *[await api.get(path) for path in ("/v1/queue", "/v1/queue/consumers", "/v1/retries", "/v1/dead-letters")],
            await api.post("/v1/dead-letters/replay", json={"everything": True}),
            await api.post("/v1/retries/run-now", json={"everything": True}),
        ]

    assert [(status, problem["code"]) for status, problem in answers] == [(503, "queue_unavailable")] * 6
    assert [row[:3] for row in await audit(scene)] == [
        ("begun", "operator", "dead_letters.replay"),
        ("failed", "operator", "dead_letters.replay"),
        ("begun", "operator", "retries.run_now"),
        ("failed", "operator", "retries.run_now"),
    ]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/retries?cursor=x",
        "/v1/retries?cursor=WyJhIiwiYiJd",
        "/v1/retries?limit=501",
        "/v1/dead-letters?cursor=IigxIg",
        "/v1/dead-letters?since=2026-01-02&until=2026-01-01",
        "/v1/dead-letters?since=x",
        "/v1/dead-letters?order_id=x",
        "/v1/queue?x=1",
        "/v1/queue/consumers?limit=0",
    ],
)
async def test_a_query_that_is_not_understood_is_refused(api: Api, path: str) -> None:
    status, problem = await api.get(path)

    assert (status, problem["code"] in {"invalid_parameter", "unknown_parameter"}) == (422, True)


# -- several sources ----------------------------------------------------------------------------------------------


async def test_dead_letters_of_a_source_are_listed_replayed_and_audited_with_its_name(
    scene: Scene, tmp_path: Path
) -> None:
    names = ("shop-de", "shop-fr")
    file = tmp_path / "sources.toml"
    file.write_text(
        "".join(f'[sources.{name}.upstream]\nurl = "https://{name}.example/{{order_id}}"\n' for name in names)
    )
    for name in names:
        await scene.redis.xadd(Keys.of(queue_of(scene.queue, name)).dead, dead_fields("1"))  # type: ignore[arg-type]

    async with running_api(scene.redis_url, scene.dsn, scene.queue, OPERATOR, sources=str(file)) as api:
        replayed = await api.post("/v1/sources/shop-fr/dead-letters/replay", json={"ids": ["1"]})
        found = [(await api.get(f"/v1/sources/{name}/dead-letters"))[1]["dead_letters"] for name in names]

    assert replayed == (200, {"dry_run": False, "count": 1, "missing_partitions": [], "gone": 0})
    assert [[(each["source"], each["order_id"]) for each in page] for page in found] == [[("shop-de", "1")], []]
    rows = await scene.sql("SELECT source, phase, action FROM audit_log ORDER BY id")
    assert [tuple(row) for row in rows] == [
        ("shop-fr", "begun", "dead_letters.replay"),
        ("shop-fr", "done", "dead_letters.replay"),
    ]
