"""The steps of docs/enqueue/webhooks.md work, and the commands report unusable files."""

import json
import re
import shlex
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import webhook_requests as made
from support import Cli

PAGE = (Path(__file__).parents[2] / "docs" / "enqueue" / "webhooks.md").read_text(encoding="utf-8")
COMMANDS = [line.strip() for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
SECRET = "a-secret-of-your-own"


@pytest.fixture
def shop(cli: Cli, tmp_path: Path) -> Cli:
    """The page's files, and the setting."""
    for line in COMMANDS:
        if line.startswith(("mkdir", "printf")):
            subprocess.run(["sh", "-c", line], cwd=tmp_path, check=True)
    cli.env["INGEST_WEBHOOKS"] = str(tmp_path / "webhooks" / "webhooks.toml")
    return cli


def test_the_sources_are_shown_as_on_the_page(shop: Cli) -> None:
    done = shop.run("webhook", "check")

    assert done.returncode == 0, done.stderr
    shown = re.findall(r"```text\nwebhook.*?```", PAGE, re.DOTALL)[0].splitlines()[1:-2]
    assert done.stdout.splitlines()[: len(shown)] == shown


def test_a_request_is_checked_as_on_the_page(shop: Cli, tmp_path: Path) -> None:
    (line,) = [line for line in COMMANDS if "webhook check --source" in line]
    body = tmp_path / "webhooks" / "body.json"
    signature = made.shopify(body.read_bytes(), SECRET)["X-Shopify-Hmac-Sha256"]
    given = [word.replace("$SIGNATURE", signature) for word in shlex.split(line)[1:]]
    given[given.index("webhooks/body.json")] = str(body)

    done = shop.run(*given)
    body.write_bytes(body.read_bytes() + b"\n")
    changed, as_json = shop.run(*given), shop.run(*given, "--json")

    assert done.returncode == 0, done.stderr
    assert "order_id         450789469" in done.stdout.splitlines()
    assert (changed.returncode, changed.stdout) == (1, "")
    assert changed.stderr == "ingest: refused as bad_signature: no signature of this request fits\n"
    assert (as_json.returncode, json.loads(as_json.stdout)["code"]) == (1, "bad_signature")


def test_the_sources_as_json(shop: Cli) -> None:
    (webhook,) = json.loads(shop.run("webhook", "check", "--json").stdout)

    assert (webhook["webhook"], webhook["path"], webhook["keys"]) == ("shop", "/v1/webhooks/shop", 1)


def test_the_webhooks_of_sources_are_in_the_sources_file(cli: Cli, tmp_path: Path) -> None:
    file, body = tmp_path / "sources.toml", tmp_path / "body.json"
    (tmp_path / "secret").write_text(SECRET)
    body.write_bytes(b'{"id": 1}')
    table = """
        [sources.{name}]
        webhook = {{ profile = "shopify", secret_files = ["secret"] }}
        upstream = {{ url = "https://{name}.example/{{order_id}}" }}
    """
    file.write_text("".join(table.format(name=name) for name in ("shop-de", "shop-fr")))
    env = {"INGEST_SOURCES": str(file)}
    headers = [f"{name}: {value}" for name, value in made.shopify(body.read_bytes(), SECRET).items()]
    options = [word for header in headers for word in ("--header", header)]

    every = cli.run("webhook", "check", "--json", env=env)
    one = cli.run("webhook", "check", "--source", "shop-fr", "--json", env=env)
    request = cli.run("webhook", "check", "--source", "shop-de", "--body", str(body), "--json", *options, env=env)

    assert [each["webhook"] for each in json.loads(every.stdout)] == ["shop-de", "shop-fr"]
    assert [each["path"] for each in json.loads(one.stdout)] == ["/v1/webhooks/shop-fr"]
    assert json.loads(request.stdout)["order_id"] == "1"


def test_a_missing_secret_is_reported_and_the_webhooks_of_other_sources_are_shown(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "sources.toml"
    (tmp_path / "shop-fr.secret").write_text(SECRET)
    table = """
        [sources.{name}]
        webhook = {{ profile = "shopify", secret_files = ["{name}.secret"] }}
        upstream = {{ url = "https://{name}.example/{{order_id}}" }}
    """
    file.write_text("".join(table.format(name=name) for name in ("shop-de", "shop-fr")))
    env = {"INGEST_SOURCES": str(file)}

    every = cli.run("webhook", "check", env=env)
    usable = cli.run("webhook", "check", "--source", "shop-fr", env=env)
    unusable = cli.run("webhook", "check", "--source", "shop-de", env=env)

    assert (every.returncode, usable.returncode, unusable.returncode) == (2, 0, 2)
    assert every.stdout == usable.stdout
    assert "/v1/webhooks/shop-fr" in usable.stdout
    assert every.stderr == unusable.stderr
    [line] = every.stderr.splitlines()
    assert "sources.shop-de.webhook.secret_files" in line


def test_the_api_takes_what_the_page_sends(shop: Cli) -> None:
    api = shop.start("api", "--port", "0", env={"INGEST_API_METRICS_PORT": "0", "INGEST_LOG_FORMAT": "json"})
    assert api.stderr is not None
    url = next(event["url"] for event in map(json.loads, api.stderr) if event["event"] == "listening")
    body = b'{"id": 450789469}'

    def send(headers: dict[str, str]) -> tuple[int, object]:
        request = urllib.request.Request(f"{url}/v1/webhooks/shop", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)["code"]

    assert send(made.shopify(body, SECRET)) == (200, {"result": "accepted"})
    assert send(made.shopify(body, "another")) == (401, "bad_signature")


@pytest.mark.parametrize("command", [("api",), ("webhook", "check")])
def test_a_file_that_cannot_be_used_is_one_line_with_exit_code_2(shop: Cli, command: tuple[str, ...]) -> None:
    path = Path(shop.env["INGEST_WEBHOOKS"])
    path.write_text(path.read_text().replace("shopify", "shopfy"))

    done = shop.run(*command, env={"INGEST_API_PORT": "0", "INGEST_API_METRICS_PORT": "0"})

    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ingest: ")]
    assert done.returncode == 2
    assert line.startswith(
        f"ingest: INGEST_WEBHOOKS: {path}, line 2, sources.shop.profile: Invalid enum value 'shopfy'"
    )


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("--body", "-"), "--body needs --source"),
        (("--source", "other", "--body", "-"), "no webhook is called 'other'; there are shop"),
        (("--source", "shop", "--body", "-", "--header", "x"), "write it as `Name: value`"),
        (("--source", "shop", "--body", "/nowhere"), "cannot read /nowhere: No such file or directory"),
    ],
)
def test_wrong_use_is_told(shop: Cli, given: tuple[str, ...], error: str) -> None:
    done = shop.run("webhook", "check", *given)

    assert done.returncode == 2
    assert error in " ".join(done.stderr.split())
