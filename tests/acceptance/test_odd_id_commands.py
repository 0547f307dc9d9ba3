"""IDs such as `SO/2026/12`, `#1001` and `-1001` through the real commands: enqueue, worker, find, replay, reconcile, erase."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from acceptance.commands import Workers, closing_workers
from acceptance.dead_lettering import lines
from integration.scene import Scene, document
from odd_ids import ODD_IDS
from support import Cli, eventually

ARGUMENTS, LINES, CSV, JSONL = (ODD_IDS[start::4] for start in range(4))
# Each of these is not known to the external API at first.
DEAD = ODD_IDS[::3]


@pytest.fixture
def workers(cli: Cli, scene: Scene) -> Iterator[Workers]:
    with closing_workers(cli, {"INGEST_UPSTREAM_URL": scene.api.url_template}) as workers:
        yield workers


def files(folder: Path) -> None:
    (folder / "ids.txt").write_text("".join(json.dumps(each) + "\n" for each in LINES))
    with (folder / "ids.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["note", "order"], *(["two\nlines", each] for each in CSV)])
    (folder / "ids.jsonl").write_text("".join(json.dumps({"order": each}) + "\n" for each in JSONL))


async def test_orders_go_through_all_commands_under_their_ids(
    cli: Cli, scene: Scene, workers: Workers, tmp_path: Path
) -> None:
    files(tmp_path)
    for order_id in DEAD:
        scene.api.delete_order(order_id)
    for enqueued in (
        cli.run("enqueue", "--", *ARGUMENTS),
        cli.run("enqueue", "--file", str(tmp_path / "ids.txt")),
        cli.run("enqueue", "--file", str(tmp_path / "ids.csv"), "--column", "order"),
        cli.run("enqueue", "--file", str(tmp_path / "ids.jsonl"), "--column", "order"),
    ):
        assert (enqueued.returncode, enqueued.stderr) == (0, "")
    worker = workers.start()
    await scene.finished()

    # -- dead letters --

    as_json = cli.run("dead", "list", "--json")
    table = cli.run("dead", "list", env={"COLUMNS": "400"})
    exported = cli.run("dead", "export", "--format", "csv")
    shown = cli.run("dead", "show", "--", *DEAD)
    assert {each["order_id"]: each["reason"] for each in lines(as_json.stdout)} == dict.fromkeys(DEAD, "not_found")
    assert len(table.stdout.splitlines()) == 1 + len(DEAD)
    assert all(any(f"  {order_id}  " in line for line in table.stdout.splitlines()) for order_id in DEAD)
    assert shown.returncode == 0
    rows = list(csv.DictReader(io.StringIO(exported.stdout)))
    # An apostrophe keeps a spreadsheet from running a cell as a formula.
    assert sorted(row["order_id"].removeprefix("'") for row in rows) == sorted(DEAD)

    # -- replay --

    for order_id in DEAD:
        scene.api.put_order(order_id, document(order_id))
    replayed = cli.run("dead", "replay", "--yes", "--", *DEAD)
    await scene.finished()
    assert (replayed.returncode, await scene.dead()) == (0, [])
    assert sorted(await scene.rows()) == sorted(ODD_IDS)
    assert await worker.stop() == 0
    assert not worker.events(""), "each line of the log is JSON"

    # -- find, reconcile, fetch again, erase --

    found = cli.run("order", "show", "--json", "--", *ODD_IDS)
    as_text = cli.run("order", "show", "--", *ODD_IDS)
    listed = cli.run("reconcile", "--missing", "-", "--", *ODD_IDS, "[lost]", '"lost"', "lost")
    again = cli.run("order", "refetch", "--", *ODD_IDS)
    erased = cli.run("order", "erase", "--yes", "--json", "--", *ODD_IDS)
    assert [(each["order_id"], each["ingestion"]["state"]) for each in lines(found.stdout)] == [
        (order_id, "stored") for order_id in ODD_IDS
    ]
    assert [line for line in as_text.stdout.splitlines() if not line.startswith(" ")] == [
        f"order {order_id}: stored" for order_id in ODD_IDS
    ]
    assert listed.stdout.splitlines() == ['"\\"lost\\""', '"[lost]"', "lost"]
    assert again.returncode == 0
    assert json.loads(erased.stdout)["erased"] == [*ODD_IDS]
    assert await scene.stored() == 0

    # Missing IDs pass through a pipe unchanged.
    cli.run("enqueue", "-", stdin=listed.stdout)

    async def last_queued() -> list[str]:
        return [fields[b"order_id"].decode() for _, fields in await scene.redis.xrange(scene.keys.stream)][-3:]

    assert await eventually(last_queued) == ['"lost"', "[lost]", "lost"]


def test_a_line_of_a_json_file_is_not_taken_for_an_id(cli: Cli) -> None:
    done = cli.run("enqueue", "-", stdin='{"order_id": "1"}\n[1]\n"half\n#1001\n')

    assert (done.returncode, done.stdout.split(" in ")[0]) == (1, "1 accepted, 3 invalid")
    assert "stdin, line 1: looks like JSON: use --format jsonl" in done.stderr
    assert "stdin, line 3: begins with a quote" in done.stderr


def test_a_missing_number_is_not_taken_for_an_id(cli: Cli) -> None:
    literals = ["null", "true", "false", "NaN", "Infinity", "-Infinity", "1e3", "-1.5"]
    listed = cli.run("reconcile", "--missing", "-", "--", *literals, "1003")
    done = cli.run(
        "enqueue", "-", stdin="\n".join([*literals, *(f'"{each}"' for each in literals), "NaN-1", "1003", ""])
    )

    assert (done.returncode, done.stdout.split(" in ")[0]) == (1, "10 accepted, 8 invalid")
    assert "stdin, line 4: looks like JSON" in done.stderr
    assert sorted(listed.stdout.splitlines()) == sorted([*(f'"{each}"' for each in literals), "1003"])
