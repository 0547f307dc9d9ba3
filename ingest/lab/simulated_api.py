"""A simulated external API in a process of its own, by the command of a user: `ingest upstream`."""

from contextlib import closing
from pathlib import Path

from ingest.lab.commands import Command, Commands
from ingest.lab.endpoints import ApiControl, ApiStats

_SECONDS_TO_STOP = 30.0


class RunningApi:
    """The API, from when it listens until it is stopped.

    Attributes:
        url: for INGEST_UPSTREAM_URL.
        ca_file: for INGEST_UPSTREAM_CA_FILE; None over plain HTTP.
        pid: of its process.

    Args:
        commands: start it, and end it at the latest.
        options: of `ingest upstream`.
        ca_file: PEM file of the authority of its certificate, where the options have it serve HTTPS.
    """

    def __init__(self, commands: Commands, *options: str, ca_file: Path | None = None) -> None:
        self.ca_file = ca_file
        self._command: Command = commands.start("upstream", "--port", "0", *options)
        self.url = self._command.first_url()
        self.pid = self._command.pid

    def stats(self) -> ApiStats:
        """The counters since the start or the last reset, including requests by order."""
        with closing(ApiControl(self.url, self.ca_file)) as control:
            stats = control.stats_by_id()
        if stats is None:
            raise self._command.failed("does not answer")
        return stats

    def reset(self) -> None:
        """Reset its counters."""
        with closing(ApiControl(self.url, self.ca_file)) as control:
            if not control.reset():
                raise self._command.failed("does not answer")

    def stop(self) -> None:
        """End it."""
        self._command.stop(_SECONDS_TO_STOP)
