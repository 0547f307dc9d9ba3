"""Commands for operators in a deployment with several sources."""

import csv
import json

from acceptance.dead_lettering import assert_one_line, lines, on_a_terminal
from acceptance.queued import Sources
from support import Cli

# -- dead letters -------------------------------------------------------------------------------------------------


def test_dead_letters_of_all_sources_are_listed_together_with_their_source(sources: Sources) -> None:
    sources.dead_letter("shop-de", "1", dead_at=1_700_000_000_000)
    sources.dead_letter("shop-fr", "1", dead_at=1_700_000_001_000)
    sources.dead_letter("shop-de", "2", dead_at=1_700_000_002_000)

    table = sources.run("dead", "list")
    as_json = sources.run("dead", "list", "--json")
    of_one = sources.run("dead", "list", "--source", "shop-fr", "--json")
    shown = sources.run("dead", "show", "1")

    header, *rows = table.stdout.splitlines()
    assert header.split()[:3] == ["source", "id", "order"]
    assert [(row.split()[0], row.split()[2]) for row in rows] == [("shop-de", "2"), ("shop-fr", "1"), ("shop-de", "1")]
    assert [(each["source"], each["order_id"]) for each in lines(as_json.stdout)] == [
        ("shop-de", "2"),
        ("shop-fr", "1"),
        ("shop-de", "1"),
    ]
    assert [each["source"] for each in lines(of_one.stdout)] == ["shop-fr"]
    assert [line.split()[1] for line in shown.stdout.splitlines() if line.startswith("source")] == [
        "shop-fr",
        "shop-de",
    ]


def test_dead_letters_are_exported_with_their_source(sources: Sources) -> None:
    for source, order_id in (("shop-fr", "1"), ("shop-de", "2"), ("shop-fr", "3")):
        sources.dead_letter(source, order_id)

    as_json = sources.run("dead", "export")
    as_csv = sources.run("dead", "export", "--format", "csv", "--source", "shop-fr")

    exported = [(each["source"], each["order_id"]) for each in lines(as_json.stdout)]
    assert exported == [("shop-de", "2"), ("shop-fr", "1"), ("shop-fr", "3")]
    rows = csv.DictReader(as_csv.stdout.splitlines())
    assert [(row["source"], row["order_id"]) for row in rows] == [("shop-fr", "1"), ("shop-fr", "3")]


def test_a_change_of_dead_letters_needs_a_source_if_there_are_several(sources: Sources) -> None:
    for source in sources.keys:
        sources.dead_letter(source, "1")

    everywhere = sources.run("dead", "replay", "1", "--yes")
    dry = sources.run("dead", "replay", "--all", "--dry-run")
    unknown = sources.run("dead", "replay", "1", "--source", "shop-it")
    replayed = sources.run("dead", "replay", "1", "--source", "shop-fr")

    assert_one_line(everywhere, 2)
    assert "--source, from shop-de, shop-fr" in everywhere.stderr
    assert dry.stdout == "would replay 2 dead letters: shop-de 1 (1 not_found), shop-fr 1 (1 not_found)\n"
    assert_one_line(unknown, 2)
    assert "shop-de, shop-fr" in unknown.stderr
    assert replayed.stdout == "replayed 1 dead letter of shop-fr: 1 not_found\n"
    assert (sources.dead("shop-de"), sources.queued("shop-de")) == (["1"], [])
    assert (sources.dead("shop-fr"), sources.queued("shop-fr")) == ([], ["1"])


def test_the_question_before_a_change_of_several_sources_counts_each(cli: Cli, sources: Sources) -> None:
    sources.dead_letter("shop-de", "1")
    sources.dead_letter("shop-fr", "1", "rejected")
    sources.dead_letter("shop-fr", "2")
    both = ("--source", "shop-de", "--source", "shop-fr")

    code, written = on_a_terminal(cli, "dead", "drop", "--all", *both, answer=b"n\n", env={"COLUMNS": "200"})
    dropped = sources.run("dead", "drop", "1", "3", *both, "--yes", "--json")

    assert code == 1
    assert "Would drop 3 dead letters: shop-de 1 (1 not_found), shop-fr 2 (1 not_found, 1 rejected)." in written
    assert (dropped.returncode, json.loads(dropped.stdout)) == (
        1,
        {
            "matched": 2,
            "dropped": 2,
            "gone": 0,
            "reasons": {"not_found": 1, "rejected": 1},
            "sources": [
                {"source": "shop-de", "matched": 1, "dropped": 1, "reasons": {"not_found": 1}},
                {"source": "shop-fr", "matched": 1, "dropped": 1, "reasons": {"rejected": 1}},
            ],
            "missing": ["3"],
            "dry_run": False,
        },
    )
    assert (sources.dead("shop-de"), sources.dead("shop-fr")) == ([], ["2"])


# -- retries ------------------------------------------------------------------------------------------------------


def test_retries_are_listed_and_changed_by_source(sources: Sources) -> None:
    for source, order_id, due in (("shop-de", "1", 4e12), ("shop-fr", "1", 4e12 - 1), ("shop-fr", "2", 4e12 + 1)):
        sources.let_wait(source, order_id, int(due))

    table = sources.run("retries", "list", "--limit", "2")
    as_json = sources.run("retries", "list", "--json", "--source", "shop-fr")
    moved = sources.run("retries", "dead-letter", "1", "--source", "shop-de")

    header, *rows = table.stdout.splitlines()
    assert header.split()[:2] == ["source", "order"]
    assert [row.split()[:2] for row in rows] == [["shop-fr", "1"], ["shop-de", "1"]]
    assert "more than these 2" in table.stderr
    assert [(each["source"], each["order_id"]) for each in lines(as_json.stdout)] == [
        ("shop-fr", "1"),
        ("shop-fr", "2"),
    ]
    assert moved.stdout == "dead-lettered 1 retry of shop-de: 1 timeout\n"
    assert (sources.dead("shop-de"), sources.dead("shop-fr")) == (["1"], [])
