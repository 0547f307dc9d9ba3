"""The script and the documented statements that create the database roles, on a real server."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import pytest

from ingest.lab.servers.postgres import PostgresServer, installed_programs

PAGE = Path(__file__).parents[2] / "docs" / "deploy" / "postgresql.md"
SCRIPT = Path(__file__).parents[2] / "deploy" / "postgres" / "roles.sh"
SECRETS = {
    "postgres_owner_password": "owner's",
    "postgres_password": "wörker \\ $x",
    "postgres_api_password": "api-s3cr3t",
}
ROLES = dict(zip(("ingest_owner", "ingest", "ingest_api"), SECRETS.values(), strict=True))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the unprivileged user of the server can enter."""
    with TemporaryDirectory(prefix="ingest-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.mark.parametrize("ending", ["", "\n"], ids=["no newline", "newline"])
async def test_no_password_is_sent_to_the_server_in_clear(tmp_path: Path, folder: Path, ending: str) -> None:
    for name, secret in SECRETS.items():
        (tmp_path / name).write_text(secret + ending)
    with PostgresServer(folder / "server", settings={"log_statement": "all"}) as server:
        env = {
            **os.environ,
            "PATH": f"{installed_programs()}:{os.environ['PATH']}",
            "PGHOST": "127.0.0.1",
            "PGPORT": str(server.port),
            "PGPASSWORD": server.password,
            "POSTGRES_USER": "postgres",
            "POSTGRES_DB": "postgres",
            "SECRETS": str(tmp_path),
        }

        done = await asyncio.to_thread(
            subprocess.run, ["sh", SCRIPT], env=env, capture_output=True, text=True, check=False, timeout=60
        )

        assert (done.returncode, done.stderr) == (0, "")
        for role, secret in ROLES.items():
            connection = await asyncpg.connect(server.dsn, user=role, password=secret)
            assert await connection.fetchval("SELECT current_user") == role
            await connection.close()
        log = server.log.read_text()
    assert "CREATE ROLE ingest_owner" in log
    assert not any(secret in log for secret in SECRETS.values())


async def test_an_owner_without_superuser_rights_can_run_the_documented_statements(folder: Path) -> None:
    [statements] = re.findall(r"^```sql\n(CREATE ROLE.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    [command] = re.findall(r"^ingest (migrate --runtime-role .*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    with PostgresServer(folder / "server") as server:
        boss = await asyncpg.connect(server.dsn)
        await boss.execute("CREATE ROLE owner LOGIN CREATEROLE PASSWORD 'owner'")
        await boss.execute("CREATE DATABASE ingest OWNER owner")
        await boss.close()
        owner = await asyncpg.connect(server.dsn, user="owner", password="owner", database="ingest")
        await owner.execute(statements)
        await owner.close()

        env = {
            **os.environ,
            "INGEST_POSTGRES_DSN": f"postgresql://ingest_owner@127.0.0.1:{server.port}/ingest",
            "INGEST_POSTGRES_PASSWORD": "change-me-1",
        }
        program = [str(Path(sys.executable).with_name("ingest")), *command.split()]
        done = await asyncio.to_thread(
            subprocess.run, program, env=env, cwd=folder, capture_output=True, text=True, check=False, timeout=60
        )

        assert done.returncode == 0, done.stderr
        worker = await asyncpg.connect(server.dsn, user="ingest", password="change-me-2", database="ingest")
        assert await worker.fetchval("SELECT count(*) FROM orders") == 0
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await worker.execute("DELETE FROM orders")
        await worker.close()
