"""Runs the simulated external API in a separate process with the user's command `ingest upstream`."""

from contextlib import closing
from pathlib import Path

from ingest.lab.commands import Command, Commands
from ingest.lab.endpoints import ApiControl
from ingest.lab.upstream.stats import StatsReport

_SECONDS_TO_STOP = 30.0


class RunningApi:
    """The API from when it listens until it is stopped.

    Attributes:
        url: value for INGEST_UPSTREAM_URL.
        ca_file: value for INGEST_UPSTREAM_CA_FILE, or None for plain HTTP.
        pid: PID of its process.

    Args:
        commands: starts the process, and ends it at the latest.
        options: options of `ingest upstream`.
        ca_file: PEM file with the CA of its certificate, if the options select HTTPS.
    """

    def __init__(self, commands: Commands, *options: str, ca_file: Path | None = None) -> None:
        self.ca_file = ca_file
        self._command: Command = commands.start("upstream", "--port", "0", *options)
        self.url = self._command.first_url()
        self.pid = self._command.pid

    def stats(self) -> StatsReport:
        """Return the counters since the start or the last reset, including requests by order."""
        with closing(ApiControl(self.url, self.ca_file)) as control:
            stats = control.stats_by_id()
        if stats is None:
            raise self._command.failed("does not respond")
        return stats

    def reset(self) -> None:
        """Reset the counters."""
        with closing(ApiControl(self.url, self.ca_file)) as control:
            if not control.reset():
                raise self._command.failed("does not respond")

    def stop(self) -> None:
        """Stop the API."""
        self._command.stop(_SECONDS_TO_STOP)
