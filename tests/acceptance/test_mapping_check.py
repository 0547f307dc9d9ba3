"""`ingest mapping check` and a worker's start. An error in a mapping or a document is reported in one line."""

import json
from pathlib import Path

import pytest
from support import Cli

SAMPLES = Path(__file__).parents[1] / "mapping_samples"


def test_the_row_of_a_sample_is_shown(plain: Cli) -> None:
    done = plain.run(
        "mapping", "check", "--sample", str(SAMPLES / "shopify-rest.json"), env={"INGEST_MAPPING": "shopify"}
    )

    shown = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert {"order_id 9007199254740993", "total 215.80", "placed_at 2025-01-24T04:10:16Z"} <= set(shown)
    assert {"attributes.current_quantities [0, 3, 2]", "variant-49148385 3 3.00 Sticker"} <= set(shown)


def test_the_row_of_a_sample_from_a_pipe_as_json(plain: Cli) -> None:
    document = (SAMPLES / "woocommerce.json").read_text()

    done = plain.run(
        "mapping", "check", "--sample", "-", "--mapping", "woocommerce", "--id", "727", "--json", stdin=document
    )

    checked = json.loads(done.stdout)
    assert (done.returncode, checked["fits"]) == (0, True)
    assert checked["row"]["lines"][3] == {
        "sku": "CABLE",
        "quantity": "2.5",
        "unit_price": "1.2",
        "description": "Cable, by the metre",
    }


def test_a_different_total_and_values_that_were_left_out_are_shown(plain: Cli) -> None:
    document = json.loads((SAMPLES / "woocommerce.json").read_text()) | {"total": "32.00", "customer_id": {}}
    given = ("mapping", "check", "--sample", "-", "--mapping", "woocommerce")

    shown, as_json = (plain.run(*given, *options, stdin=json.dumps(document)) for options in ([], ["--json"]))

    left_out = "customer_id: expected `str` or `int`, got `object` - at `$.customer_id`"
    assert (shown.returncode, as_json.returncode) == (0, 0)
    assert shown.stderr.splitlines() == [
        f"left out: {left_out}",
        "the document's total minus the sum of the lines is 0.65",
    ]
    assert "attributes.total_difference 0.65" in {" ".join(line.split()) for line in shown.stdout.splitlines()}
    checked = json.loads(as_json.stdout)
    assert (checked["total_difference"], checked["omitted"]) == ("0.65", [left_out])
    assert checked["row"]["attributes"]["total_difference"] == "0.65"


def test_neither_output_has_a_character_that_a_terminal_takes_for_a_command(plain: Cli) -> None:
    evil = "Zoë \x9b31m \u202e"
    document = (SAMPLES / "woocommerce.json").read_text().replace("Cable, by the metre", evil)
    given = ("mapping", "check", "--sample", "-", "--mapping", "woocommerce")

    shown, as_json = (plain.run(*given, *options, stdin=document).stdout for options in ([], ["--json"]))

    assert json.loads(as_json)["row"]["lines"][3]["description"] == evil
    assert "Zoë" in as_json
    assert all(line.isprintable() for line in (shown + as_json).splitlines())


def test_json_is_utf_8_in_any_locale(plain: Cli) -> None:
    document = (SAMPLES / "woocommerce.json").read_text().replace("Cable, by the metre", "Zoë")
    given = ("mapping", "check", "--sample", "-", "--mapping", "woocommerce", "--json")

    done = plain.run(*given, stdin=document, env={"PYTHONIOENCODING": "latin-1"})

    assert json.loads(done.stdout)["row"]["lines"][3]["description"] == "Zoë"


def test_a_document_that_does_not_fit_is_told_with_exit_code_1(plain: Cli) -> None:
    given = ("mapping", "check", "--sample", str(SAMPLES / "amazon.json"), "--mapping", "shopify")

    said, as_json = plain.run(*given), plain.run(*given, "--json")

    error = "no value for `id` - at `$.id`"
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == f"ingest: the document does not fit the mapping: {error}\n"
    assert (as_json.returncode, json.loads(as_json.stdout)) == (1, {"fits": False, "error": error})


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ((), "give a document (--sample) or the ID of an order to fetch (--id)"),
        (("--sample", "-"), "there is no mapping: set INGEST_MAPPING, or give --mapping"),
        (("--sample", "-", "--mapping", "shoppify"), "ingest: --mapping: unknown mapping 'shoppify'"),
        (("--id", "1", "--mapping", "shopify", "--url", "http://x/"), "ingest: --url: must contain {order_id}"),
        (("--id", "1", "--mapping", "shopify", "--url", "ftp://x/{order_id}"), "ingest: --url: must start with http"),
        (("--sample", "missing.json", "--mapping", "shopify"), "cannot read missing.json: No such file or directory"),
        (("--sample", "-", "--url", "http://x/{order_id}"), "--url is for an order that is fetched"),
        (("--id", "a b ", "--mapping", "shopify"), "'a b ' is not an order ID"),
    ],
)
def test_wrong_use_is_told_with_exit_code_2(plain: Cli, given: tuple[str, ...], error: str) -> None:
    done = plain.run("mapping", "check", *given)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert error in done.stderr


def test_a_worker_does_not_start_with_a_mapping_that_cannot_be_used(plain: Cli, tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text('[order]\nid = "id"\n\n[[lines]]\nform = "items"\n')

    worker = plain.run("worker", env={"INGEST_MAPPING": str(file), "INGEST_METRICS_PORT": "0"})

    said = f"ingest: INGEST_MAPPING: {file}, line 1, order: needs the key `status`\n"
    assert (worker.returncode, worker.stderr) == (2, said)
