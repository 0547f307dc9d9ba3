"""`ingest dead list`, `groups`, `replay --dry-run`, `show` and `export`, and `ingest retries list`, while a node of a cluster is down."""

import json
from pathlib import Path

import pytest
from cluster_set import ClusterSet
from dead_letter_entries import dead_fields
from servers.kinds import KINDS
from support import Cli, eventually

from ingest.domain.partitions import Layout
from ingest.queue.layout.keys import Keys
from ingest.queue.partitions.layout_record import LayoutRecord, layout_key
from ingest.queue.redis.connection import control_client

ORDERS = [f"order-{number}" for number in range(60)]


@pytest.mark.parametrize("loses_record", [False, True])
async def test_dead_letters_of_reachable_nodes_are_listed_and_missing_partitions_are_reported(
    cli: Cli, queue_name: str, tmp_path: Path, *, loses_record: bool
) -> None:
    options = {
        "cluster_require_full_coverage": "no",
        "cluster_node_timeout": "500",
        "appendonly": "yes",
        "appendfsync": "always",
    }
    with ClusterSet.open(KINDS[0], tmp_path, replicas=0, **options) as cluster:
        await cluster.become_ready()
        layout = Layout(queue_name, 6)
        async with control_client(cluster.url()) as client:
            await LayoutRecord(client, queue_name, 6).read()
            for order_id in ORDERS:
                await client.xadd(Keys.of(layout.queue_of_order(order_id)).dead, dead_fields(order_id))  # type: ignore[arg-type]
        record = await cluster.owner(layout_key(queue_name))
        owners = {queue: await cluster.owner(Keys.of(queue).dead) for queue in layout.current}
        others = [node for node in owners.values() if node is not record]
        victim = record if loses_record else others[0]
        down = {queue for queue, node in owners.items() if node is victim}
        left = {order_id for order_id in ORDERS if layout.queue_of_order(order_id) not in down}
        cli.env |= {"INGEST_REDIS_URL": cluster.url(), "INGEST_PARTITIONS": "6"}
        victim.kill()
        # The cluster responds when the other nodes agree that the node has failed.
        await eventually(lambda: cli.run("dead", "list").stdout != "")

        listed = cli.run("dead", "list", "--limit", "100", env={"COLUMNS": "200"})
        as_json = cli.run("dead", "list", "--limit", "100", "--json")
        grouped = cli.run("dead", "groups", "--json")
        retries = cli.run("retries", "list", "--json")
        previewed = cli.run("dead", "replay", "--all", "--dry-run", "--json")
        shown = cli.run("dead", "show", "an-order-without-a-dead-letter")
        file = tmp_path / "dead.jsonl"
        exported, to_file = cli.run("dead", "export"), cli.run("dead", "export", "--output", str(file))
        is_complete = file.exists()
        await cluster.restart(victim)
        resumed = cli.run("dead", "export", "--output", str(file), "--resume")
        in_file = [json.loads(line)["order_id"] for line in file.read_text().splitlines()]

    objects = [json.loads(line) for line in as_json.stdout.splitlines()]
    missing = down | ({queue_name} if loses_record else set())
    assert [each.returncode for each in (listed, as_json, grouped, shown, exported, to_file, resumed)] == [
        1,
        1,
        1,
        1,
        1,
        1,
        0,
    ]
    assert (retries.returncode, {json.loads(line)["queue"] for line in retries.stdout.splitlines()}) == (1, missing)
    assert {json.loads(line)["order_id"] for line in exported.stdout.splitlines()} == left
    assert (is_complete, sorted(in_file)) == (False, sorted(ORDERS))
    assert "the export is not complete: run it again with --resume" in to_file.stderr
    assert {line.split()[1] for line in listed.stdout.splitlines()[1:]} == left
    assert json.loads(grouped.stdout)["count"] == len(left)
    assert {each["order_id"] for each in objects if "order_id" in each} == left
    assert {each["queue"] for each in objects if each.get("unavailable")} == missing
    preview = json.loads(previewed.stdout)
    assert (previewed.returncode, preview["matched"]) == (1, len(left))
    assert {each["queue"] for each in preview["unavailable"]} == missing
    for done in (listed, as_json, grouped, previewed, shown, exported, to_file):
        assert {
            line.split()[4] for line in done.stderr.splitlines() if line.startswith("the dead letters of")
        } == missing
    assert "no dead letter" not in shown.stderr


async def test_a_list_fails_when_no_node_can_be_reached(cli: Cli) -> None:
    cli.env |= {"INGEST_REDIS_URL": "redis+cluster://127.0.0.1:1,127.0.0.1:2"}

    done = cli.run("dead", "list")

    assert (done.returncode, done.stdout) == (1, "")
    assert "Redis is unavailable" in done.stderr
