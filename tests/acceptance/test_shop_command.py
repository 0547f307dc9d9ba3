"""`ingest upstream --shape KIND` runs a whole simulated shop."""

import json
import urllib.request
from pathlib import Path

import pytest
from support import Cli


def test_the_shop_prints_its_url_and_takes_its_options(plain: Cli, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a secret\n")
    options = ("--orders", "7", "--changes-per-second", "2", "--webhook-secret-file", str(tmp_path / "secret"))
    shop = plain.start("upstream", "--port", "0", "--shape", "magento", "--token", "t", "--currency", "JPY", *options)
    assert shop.stdout is not None
    url = shop.stdout.readline().strip()

    with urllib.request.urlopen(f"{url}/shop") as response:
        described = json.load(response)
    with urllib.request.urlopen(f"{url}/behaviour") as response:
        behaviour = json.load(response)
    with urllib.request.urlopen(f"{url}/shop/orders") as response:
        currencies = {order["currency"] for order in json.load(response)}

    assert (described["kind"], described["first_id"]) == ("magento", "1")
    assert described["orders"] >= 7
    assert (behaviour["token"], behaviour["changes_per_second"]) == ("t", 2.0)
    assert currencies == {"JPY"}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--orders", "5"), "a whole shop needs --shape: choose shopify, shopify-rest, "),
        (("--shape", "magenta"), "a whole shop needs --shape: choose shopify, shopify-rest, "),
        (("--orders", "5", "--shape", "magento", "--error-rate", "0.1"), "--error-rate does not apply to a whole shop"),
        (("--shape", "magento", "--down", "503"), "--down does not apply to a whole shop"),
        (("--orders", "5", "--shape", "magento", "--latency", "slow"), "'slow' is not a latency"),
        (
            ("--shape", "magento", "--webhook-secret-file", "missing"),
            "--webhook-secret-file: No such file or directory",
        ),
    ],
)
def test_a_shop_rejects_options_that_it_does_not_have(plain: Cli, options: tuple[str, ...], error: str) -> None:
    refused = plain.run("upstream", "--port", "0", *options)

    assert refused.returncode == 2
    assert refused.stderr.startswith(f"ingest: {error}")
