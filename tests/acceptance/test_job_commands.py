"""`ingest job …` and `ingest dead groups` as real processes."""

import json

import pytest
from acceptance.dead_lettering import StoredDeadLetters, lines
from dead_letter_entries import dead_fields
from http_api import NOWHERE
from support import Cli


def test_a_group_is_shown_and_replayed_as_a_job(cli: Cli, dead_lettered: StoredDeadLetters) -> None:
    dead_lettered.add(*(dead_fields(f"a{n}", "rejected", error=f"HTTP 422: order {n} is unknown") for n in range(5)))
    dead_lettered.add(dead_fields("b"))

    groups = cli.run("dead", "groups")
    as_json = lines(cli.run("dead", "groups", "--text", "unknown", "--json").stdout)
    counted = cli.run("dead", "replay", "--shape", "HTTP 422: order N is unknown", "--dry-run")
    replayed = cli.run("dead", "replay", "--shape", "HTTP 422: order 9 is unknown", "--yes")
    listed = cli.run("job", "list")
    shown = json.loads(cli.run("job", "show", "1").stdout)

    first, second = [line.split() for line in groups.stdout.splitlines()[1:3]]
    assert (first[:2], second[:2]) == (["5", "rejected"], ["1", "not_found"])
    assert [(each["count"], each["shape"]) for each in as_json] == [(5, "HTTP 422: order N is unknown")]
    assert counted.stdout == "would replay 5 dead letters: 5 rejected\n"
    assert replayed.stdout == "replayed 5 dead letters: 5 rejected\n"
    assert "dead_letters.replay" in listed.stdout
    assert (shown["state"], shown["done"], shown["total"]) == ("done", 5, 5)
    assert shown["selection"]["shape"] == "HTTP 422: order 9 is unknown"


def test_a_job_that_has_ended_is_neither_cancelled_nor_resumed(cli: Cli, dead_lettered: StoredDeadLetters) -> None:
    dead_lettered.add(dead_fields("a"), dead_fields("b"))
    assert cli.run("dead", "drop", "--all", "--yes").returncode == 0

    refused = [cli.run("job", change, number) for change in ("cancel", "resume") for number in ("1", "99")]

    assert [done.returncode for done in refused] == [1, 1, 1, 1]
    assert refused[0].stderr == "ingest: the job 1 is done, so it cannot be cancelled\n"
    assert refused[3].stderr == "ingest: there is no job 99: see `ingest job list`\n"


@pytest.mark.parametrize("command", [("job", "list"), ("audit",)])
def test_a_list_with_a_limit_says_that_there_are_more(
    cli: Cli, dead_lettered: StoredDeadLetters, command: tuple[str, ...]
) -> None:
    dead_lettered.add(dead_fields("a"), dead_fields("b"))
    for order_id in ("a", "b"):
        assert cli.run("dead", "drop", "--text", order_id, "--yes").returncode == 0

    whole, cut = (cli.run(*command, "--limit", limit) for limit in ("10000", "1"))

    assert (whole.stderr, cut.stderr) == ("", "there are more than these 1: --limit lists more\n")
    assert len(whole.stdout.splitlines()) > len(cut.stdout.splitlines()) == 2


def test_without_postgresql_dead_letters_are_replayed_without_a_job(cli: Cli, dead_lettered: StoredDeadLetters) -> None:
    dead_lettered.add(dead_fields("a"), dead_fields("b"))

    done = cli.run("dead", "replay", "--all", "--yes", env={"INGEST_POSTGRES_DSN": NOWHERE})

    assert (done.returncode, done.stdout) == (0, "replayed 2 dead letters: 2 not_found\n")
    assert "PostgreSQL cannot record this change as a job" in done.stderr


def test_without_postgresql_a_dead_letter_is_replayed_by_its_id(cli: Cli, dead_lettered: StoredDeadLetters) -> None:
    dead_lettered.add(dead_fields("a"))

    done = cli.run("dead", "replay", "a", env={"INGEST_POSTGRES_DSN": NOWHERE})

    assert (done.returncode, dead_lettered.queued) == (0, ["a"])
    assert "the audit log does not record this change" in done.stderr
