"""The steps of docs/connect/several-shops.md lead to separate orders of three shops in SQL."""

import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

from acceptance.commands import closing_workers
from support import Cli, connected, eventually

PAGE = (Path(__file__).parents[2] / "docs" / "connect" / "several-shops.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
[SOURCES] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
[QUERY] = re.findall(r"-c '(SELECT .*)'", PAGE)
SHOWN = {tuple(cells) for cells in re.findall(r"^ (shop-\w+) \| (\d+) +\| (\w+) +\| +([\d.]+)$", PAGE, re.MULTILINE)}


def commands(beginning: str) -> list[list[str]]:
    """The commands of the page that begin so, without the program's name and a final `&`."""
    found = [shlex.split(line.removesuffix("&")) for line in COMMANDS if line.startswith(f"ingest {beginning}")]
    return [words[1:] for words in found]


def start_shops(cli: Cli) -> str:
    """Start the page's shops at any free ports, and return the page's sources file with these."""
    text = SOURCES
    for words in commands("upstream"):
        port = words[words.index("--port") + 1]
        upstream = cli.start(*words, "--port", "0")
        assert upstream.stdout is not None
        served = urlsplit(upstream.stdout.readline().strip())
        assert f"http://127.0.0.1:{port}/" in text, "the file of the page has the URL of the shop"
        text = text.replace(f":{port}/", f":{served.port}/")
    return text


async def test_three_shops_are_told_apart_by_the_page(cli: Cli, dsn: str, tmp_path: Path) -> None:
    (tmp_path / "sources.toml").write_text(start_shops(cli))
    for name in [name for name in cli.env if name.startswith("INGEST_UPSTREAM_")]:
        del cli.env[name]
    cli.env["INGEST_SOURCES"] = str(tmp_path / "sources.toml")
    steps = [*commands("migrate"), *commands("source list"), *commands("source check"), *commands("enqueue")]
    assert len(steps) == 8

    for words in steps:
        done = cli.run(*words)
        assert done.returncode == 0, (words, done.stderr)
    with closing_workers(cli, cli.env) as workers:
        worker = workers.start()
        async with connected(dsn) as connection:

            async def stored() -> bool:
                return len(await connection.fetch(QUERY)) == 9

            await eventually(stored)
            rows = {tuple(str(cell) for cell in row.values()) for row in await connection.fetch(QUERY)}
        assert await worker.stop() == 0

    assert {source for source, *_ in rows} == {"shop-de", "shop-uk", "shop-no"}
    assert len(SHOWN) == 5
    assert rows >= SHOWN
