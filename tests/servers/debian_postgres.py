"""PostgreSQL 15 of the distribution, in addition to the embedded version."""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from servers.get import POSTGRES

from ingest.lab.servers import PostgresServer
from ingest.lab.servers.postgres import NO_SETTINGS
from ingest.lab.unix_user import lend

IS_HERE = POSTGRES.is_there()


class DebianPostgres(PostgresServer):
    """A server of this version, which supports TLS, unlike the embedded server."""

    def __init__(self, directory: Path, settings: Mapping[str, str] = NO_SETTINGS) -> None:
        super().__init__(directory, settings=settings)
        # Its initdb takes no settings, and this one came with PostgreSQL 16.
        self._at_start = {name: value for name, value in self._settings.items() if name != "scram_iterations"}
        self._settings = {}
        self._programs = POSTGRES.binary.parent

    def _command(self, port: int) -> Sequence[str | Path]:
        settings = chain.from_iterable(("-c", f"{name}={value}") for name, value in self._at_start.items())
        return [*super()._command(port), *settings]

    def _prepare_for_other_user(self) -> None:
        if self._user is None or self._user.may_read(POSTGRES.binary.resolve()):
            self._programs = POSTGRES.binary.resolve().parent
            return
        lent = self.directory / "programs"
        lend((path for path in self._programs.rglob("*") if path.is_file()), base=self._programs, to=lent)
        self._programs = lent
