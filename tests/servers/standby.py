"""A streaming replica of a PostgreSQL server: a standby that can be promoted."""

import os
import subprocess
from pathlib import Path

from ingest.lab.servers import PostgresServer
from ingest.lab.servers.postgres import installed_programs


class StandbyServer(PostgresServer):
    """A copy of another server that follows it; a context manager, as that one is.

    Args:
        directory: where it keeps everything.
        primary: the other server.
        through: the port of a proxy that leads to it; by default the standby connects to it directly.
    """

    def __init__(self, directory: Path, primary: PostgresServer, through: int | None = None) -> None:
        super().__init__(directory)
        self.password = primary.password
        self._source = primary.dsn.replace(f":{primary.port}/", f":{through or primary.port}/")

    def _initialise(self, password_file: Path) -> None:
        del password_file
        command: list[str | Path] = [
            installed_programs() / "pg_basebackup",
            f"--dbname={self._source}",
            f"--pgdata={self.data}",
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--no-sync",
        ]
        subprocess.run(command, check=True, capture_output=True)
        if self._user is not None:
            for path in (self.data, *self.data.rglob("*")):
                os.lchown(path, self._user.uid, self._user.gid)

    def _is_ready(self, port: int, pid: int) -> bool:
        if super()._is_ready(port, pid):
            return True
        try:
            lines = (self.data / "postmaster.pid").read_text().split("\n")
        except FileNotFoundError:
            return False
        return lines[0] == str(pid) and len(lines) > 7 and lines[7].strip() == "standby"
