"""`ingest doctor` as a user runs it: no findings for a sound set-up, one line and advice for each error, exit codes."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
from acceptance.dead_lettering import on_a_terminal
from set_ups import database
from shipped import as_account
from support import Cli, closing_cli

from ingest.lab.servers import EmbeddedServers
from ingest.lab.upstream import Behaviour, SimulatedApi

CLOSED = {
    "INGEST_REDIS_URL": "redis://:s3cr3t@127.0.0.1:1/0",
    "INGEST_POSTGRES_DSN": "postgresql://x:s3cr3t@127.0.0.1:1/x",
}


@pytest.fixture(scope="module")
def dsn(own_servers: EmbeddedServers) -> Iterator[str]:
    with database(own_servers) as dsn:
        yield dsn


@pytest.fixture
async def sound(own_servers: EmbeddedServers, dsn: str, queue_name: str) -> AsyncIterator[Cli]:
    """Commands on servers that lose nothing."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("INGEST_", "COLUMNS"))}
    async with SimulatedApi(Behaviour(any_id=True)) as api:
        settings = {
            "INGEST_REDIS_URL": as_account(own_servers.redis_url, "ingest"),
            "INGEST_POSTGRES_DSN": dsn,
            "INGEST_STREAM": queue_name,
            "INGEST_UPSTREAM_URL": api.url_template,
        }
        with closing_cli({**inherited, **settings}) as cli:
            yield cli


async def run(cli: Cli, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(cli.run, "doctor", *options, env=env)


async def test_on_a_sound_set_up_it_is_quiet_but_for_the_summary(sound: Cli) -> None:
    done = await run(sound, "--order-id", "536365")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("no errors, no warnings: ")
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("is_in_dot_env", [True, False])
async def test_it_runs_no_code_of_a_folder_that_others_may_change(
    sound: Cli, tmp_path: Path, *, is_in_dot_env: bool
) -> None:
    named = {"INGEST_TRANSFORM": "module:function"}
    folder = folder_of_all_users(tmp_path, named if is_in_dot_env else {})
    environment = sound.env if is_in_dot_env else sound.env | named

    command = [sys.executable, "-P", "-m", "ingest", "doctor"]
    done = await asyncio.to_thread(
        subprocess.run, command, env=environment, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode != 0
    assert "may be changed by every user" in " ".join((done.stdout + done.stderr).split())
    assert not was_imported(folder)


def was_imported(folder: Path) -> bool:
    return (folder / "imported").exists()


def folder_of_all_users(folder: Path, settings: Mapping[str, str]) -> Path:
    """A folder to which every user can write, with a module that leaves a trace when it is imported."""
    (folder / "module.py").write_text("open('imported', 'w')\n\ndef function(order, document): ...\n")
    if settings:
        (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    folder.chmod(0o777)
    return folder


async def test_all_findings_fit_a_terminal_of_80_columns(sound: Cli) -> None:
    done = await run(sound, "--all", "--order-id", "536365", COLUMNS="80")

    lines = done.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert {line.split()[1] for line in lines if line.startswith("ok")} == {
        "redis",
        "postgres",
        "upstream",
        "settings",
    }
    assert "\x1b" not in done.stdout


async def test_on_a_terminal_levels_have_colours_unless_they_are_not_wanted(sound: Cli) -> None:
    coloured = {"COLUMNS": "80", "TERM": "xterm", "NO_COLOR": ""}

    _, shown = await asyncio.to_thread(on_a_terminal, sound, "doctor", "--all", env=coloured)
    _, plain = await asyncio.to_thread(on_a_terminal, sound, "doctor", "--all", env={**coloured, "NO_COLOR": "1"})

    assert "\x1b[32mok\x1b[0m       redis     " in shown
    assert "\x1b" not in plain


async def test_findings_as_json_have_all_levels(sound: Cli) -> None:
    done = await run(sound, "--json", "--order-id", "536365", INGEST_HEARTBEET_TTL="3")

    report = json.loads(done.stdout)
    levels = [finding["level"] for finding in report["findings"]]
    assert levels == sorted(levels, key=["error", "warning", "ok"].index), "the most severe first"
    (warning,) = [finding for finding in report["findings"] if finding["level"] == "warning"]
    assert (done.returncode, done.stderr) == (0, "")
    assert (report["clean"], report["warning"], report["error"]) == (True, 1, 0)
    assert warning == {
        "area": "settings",
        "level": "warning",
        "what": "INGEST_HEARTBEET_TTL: unknown setting; did you mean INGEST_HEARTBEAT_TTL?",
        "advice": "correct or remove it. It is ignored",
        "source": "",
    }
    assert report["ok"] == len(report["findings"]) - 1


async def test_servers_that_are_down_are_faults_beside_what_is_good(sound: Cli) -> None:
    done = await run(sound, "--all", **CLOSED)

    assert (done.returncode, done.stderr) == (1, "")
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("error")] == ["redis", "postgres"]
    assert "s3cr3t" not in done.stdout
    assert "\nok       upstream  " in done.stdout
    assert "\n                   -> start it, or check INGEST_REDIS_URL" in done.stdout


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"INGEST_PROCESSES": "none"}, "INGEST_PROCESSES"),
        ({"INGEST_POSTGRES_DSN": "postgresql://x:s3cr3t@127.0.0.1:1/x?sslmode=what"}, "INGEST_POSTGRES_DSN: `sslmode`"),
        ({"INGEST_UPSTREAM_AUTH": "bearer"}, "INGEST_UPSTREAM_TOKEN is missing"),
        ({"INGEST_MAPPING": "shoppify"}, "INGEST_MAPPING: unknown mapping 'shoppify'"),
        ({"INGEST_TRANSFORM": "nowhere:function"}, "INGEST_TRANSFORM: nowhere:function cannot be used"),
    ],
)
async def test_a_setting_that_cannot_be_used_is_one_line_and_exit_code_2(
    sound: Cli, env: dict[str, str], named: str
) -> None:
    done = await run(sound, **env)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert named in done.stderr
    assert "s3cr3t" not in done.stderr
