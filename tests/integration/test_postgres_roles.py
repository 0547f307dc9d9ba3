"""The script that creates the database roles of the deployment, on a real server that logs statements."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import pytest

from ingest.lab.servers.postgres import PostgresServer, installed_programs

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


async def give_way(server: PostgresServer) -> None:
    """Give the server's superuser another name than that of a role of the deployment."""
    first = await asyncpg.connect(server.dsn)
    await first.execute(f"CREATE ROLE boss SUPERUSER LOGIN PASSWORD '{server.password}'")
    await first.close()
    boss = await asyncpg.connect(server.dsn, user="boss")
    await boss.execute("ALTER ROLE ingest RENAME TO former")
    await boss.close()


@pytest.mark.parametrize("ending", ["", "\n"], ids=["no newline", "newline"])
async def test_no_password_is_sent_to_the_server_in_clear(tmp_path: Path, folder: Path, ending: str) -> None:
    for name, secret in SECRETS.items():
        (tmp_path / name).write_text(secret + ending)
    with PostgresServer(folder / "server", settings={"log_statement": "all"}) as server:
        await give_way(server)
        env = {
            **os.environ,
            "PATH": f"{installed_programs()}:{os.environ['PATH']}",
            "PGHOST": "127.0.0.1",
            "PGPORT": str(server.port),
            "PGPASSWORD": server.password,
            "POSTGRES_USER": "boss",
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
