"""The blocks of each page that declare a scenario run in it, in their order."""

import asyncio
import re
import shutil
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from servers.get import TOOLS
from shipped import as_admin
from support import connected

from docs.blocks import Block, Run, all_blocks
from docs.scenarios import SCENARIOS
from docs.stage import REDIS_DATABASE, Stage
from ingest.lab.servers import EmbeddedServers

_SHELL = {"sh", "bash"}


def pages() -> list[tuple[str, str, list[Block]]]:
    """The page, the scenario, and the blocks of each script, except scripts whose programs are not here."""

    def key(block: Block) -> tuple[str, str]:
        assert isinstance(block.mark, Run)
        return block.page, block.mark.scenario

    executed = [block for block in all_blocks() if isinstance(block.mark, Run) and block.mark.scenario in SCENARIOS]
    scripts = [(page, name, [*of_page]) for (page, name), of_page in groupby(sorted(executed, key=key), key)]
    missing = [tool.name for tool in TOOLS if not shutil.which(tool.name)]
    return [script for script in scripts if not any(name in block.text for block in script[2] for name in missing)]


@pytest.fixture
def stage(tmp_path: Path, servers: EmbeddedServers, dsn: str) -> Iterator[Stage]:
    folder = tmp_path / "folder"
    folder.mkdir()
    url = servers.redis_url.rpartition("/")[0] + f"/{REDIS_DATABASE}"
    stage = Stage(folder, url, as_admin(dsn))  # as on a laptop, where one account does everything
    asyncio.run(set_fsync(dsn, "on"))
    try:
        yield stage
    finally:
        stage.close()
        asyncio.run(set_fsync(dsn, "off"))


async def set_fsync(dsn: str, value: str) -> None:
    """The embedded PostgreSQL of tests has it off, which `ingest doctor` reports as an error."""
    async with connected(dsn) as connection:
        await connection.execute(f"ALTER SYSTEM SET fsync = {value}")
        await connection.execute("SELECT pg_reload_conf()")


def lines_of(block: Block, stage: Stage) -> list[str]:
    """The part of the script that executes a block."""
    assert isinstance(block.mark, Run)
    text = stage.adapted(block.text)
    saved = stage.folder.parent / f"block-{block.line}"
    saved.write_text(text, "utf-8")
    if block.mark.file is not None:
        body = [f"mkdir -p {Path(block.mark.file).parent}", f"cp {saved} {block.mark.file}"]
    elif block.language in _SHELL:
        body = text.splitlines()
    elif block.language == "python":
        body = [f"python {saved}"]
    elif block.language == "sql":
        body = [f'psql -X -v ON_ERROR_STOP=1 -d "$INGEST_POSTGRES_DSN" -f {saved}']
    else:
        pytest.fail(f"{block}: a block in {block.language or 'no language'} needs `as FILE`, or `not run`")
    if block.mark.code:
        body = ["set +e", *body, "code=$?", "set -e", f"[ $code -eq {block.mark.code} ]"]
    if block.mark.background:
        printed = saved.with_suffix(".txt")
        body = ["{", *body, f"}} >{printed} 2>&1 &", f"until [ -s {printed} ] || ! kill -0 $!; do sleep 0.05; done"]
    return body


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("scenario", "blocks"), [pytest.param(name, blocks, id=f"{page}-{name}") for page, name, blocks in pages()]
)
def test_the_blocks_of_a_page_run(stage: Stage, scenario: str, blocks: list[Block]) -> None:
    SCENARIOS[scenario](stage)

    script: list[str] = []
    ports: list[str] = []
    for block in blocks:
        script += [f"at {block} {' '.join(ports)}", *lines_of(block, stage)]
        ports = re.findall(r"(?:--port[ =]|http\.server )(\d+).*&\s*$", stage.adapted(block.text), re.MULTILINE)
    stage.execute(script)
