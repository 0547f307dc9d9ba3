"""Reads the settings of the sources again after a file that describes them has changed, or after SIGHUP.

A process that ends afterwards reads and checks the settings, because the code for this takes tens of MB, and publishes them in shared memory. The
worker processes look there every second, and processes that are started later begin with them. If a file cannot be used, the problem is
logged, and the settings before stay. If a source cannot be used, this applies to that source only.
"""

import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.domain.errors import UserError
from ingest.files.watch import CHECK_EVERY, Identity, identity_of
from ingest.process.child import Child
from ingest.process.shared_bytes import SharedBytes
from ingest.services.configured_sources import configured_sources
from ingest.settings.packed import LoadedSettings, pack_settings, unpack_settings
from ingest.settings.versions import changes
from ingest.telemetry.logs import get_logger

if TYPE_CHECKING:
    from ingest.settings import Settings

_log = get_logger("sources")

# About 10 KB of each source.
_CAPACITY = 64 * 1024 * 1024
_PROBLEM = 16 * 1024
# Seconds until the next try to use a file that cannot be used. The reason may be another file that it names.
RETRY_AFTER = 30.0

_Identities = dict[Path, Identity]

ReadAgain = Callable[[], bytes]
"""Reads the settings with the command line of this process, in any process, and returns them packed.

Raises:
    UserError: they cannot be used.
"""

Published = Callable[[int], tuple[int, LoadedSettings] | None]
"""Returns the number and the settings of the last publication after that number, or None without one."""


def never_published(since: int) -> None:
    """The publications of a command whose sources depend on no file. See `Published`."""
    del since


class SourcesReload:
    """The part of the supervisor.

    Attributes:
        child: the process that reads the settings. The supervisor starts it when it is due.

    Args:
        files: the sources file, or none.
        loaded: the sources at the start, which name the other files.
        read_again: reads the settings.
    """

    def __init__(self, files: Sequence[Path], loaded: LoadedSettings, read_again: ReadAgain) -> None:
        self._files = tuple(files)
        self._loaded = loaded
        self._sources = loaded.sources
        self._number = 0
        self._read_again = read_again
        self._published = SharedBytes(_CAPACITY)
        self._problem = SharedBytes(_PROBLEM)
        self._seen: _Identities = {file: identity_of(file) for file in files} | _followed(self._sources)
        # None if they were read while they changed.
        self._used: _Identities | None = self._seen
        self._reason = ""
        self._retry_at = time.monotonic() + RETRY_AFTER if loaded.rejected else float("inf")
        self._logged = ""
        self.child = Child("reload", self._read, on_end=self._ended, is_kept=False)

    def published(self, since: int) -> tuple[int, LoadedSettings] | None:
        """See `Published`."""
        if self._published.number <= since:
            return None
        number, data = self._published.read()
        return number, unpack_settings(data)

    # -- in the supervisor ----------------------------------------------------------------------------------

    def check(self) -> float:
        """Start to read the settings if a file has changed, but not since the last check. Return the seconds until the next check."""
        found = self._identities()
        if (found != self._used and found == self._seen) or time.monotonic() >= self._retry_at:
            self.request()
        self._seen = found
        return CHECK_EVERY

    def request(self) -> None:
        """Start to read the settings now. A process that reads already continues, and the files are checked afterwards."""
        if self.child.pid:
            self._used = None
            return
        self._retry_at = float("inf")
        found = self._identities()
        before = found if self._used is None else self._used
        changed = [file for file in found if found[file] != before.get(file)]
        self._reason = ", ".join(map(str, changed or found))
        self._used = found
        self.child.start_at = 0.0

    def _identities(self) -> _Identities:
        """Return the identities of all files that the sources depend on now."""
        return {file: identity_of(file) for file in (*self._files, *_followed(self._sources))}

    def _ended(self, code: int) -> None:
        problem = (
            self._problem.read()[1].decode() if not code else f"the process that reads it has ended with code {code}"
        )
        if self._published.number > self._number:
            self._number, data = self._published.read()
            before, self._sources = self._sources, unpack_settings(data).sources
            if self._used is not None:
                # Another file may be named now. Its content was identified before it was read, so that no later change is missed.
                followed = _followed(self._sources)
                self._used = followed | {
                    file: self._used[file] for file in (*self._files, *followed) if file in self._used
                }
            if not problem or before != self._sources:
                _log.info("sources_reloaded", file=self._reason, **changes(before, self._sources))
        if not problem:
            self._logged = ""
            return
        self._retry_at = time.monotonic() + RETRY_AFTER
        if problem != self._logged:
            self._logged = problem
            _log.error("sources_not_reloaded", file=self._reason, problem=problem)

    # -- in the process that reads --------------------------------------------------------------------------

    def _read(self, lifeline: int) -> int:
        del lifeline
        # A stop does not wait for a transform whose import takes long, for example.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
        problem = ""
        try:
            loaded = unpack_settings(self._read_again())
            _, unusable = configured_sources(loaded.settings, loaded.sources)
            rejected = {**loaded.rejected, **unusable}
            kept = {name: self._sources[name] for name in rejected if name in self._sources}
            self._publish(loaded._replace(sources={**loaded.sources, **kept}), rejected)
            problem = "; ".join(rejected.values())
        except UserError as error:
            problem = str(error)
            self._publish(self._loaded._replace(sources=self._sources), dict.fromkeys(self._sources, problem))
        except Exception as error:  # noqa: BLE001  reported by the supervisor, which keeps the settings before
            traceback.print_exc()
            problem = repr(error)
        self._problem.publish(problem.encode()[:_PROBLEM])
        return 0

    def _publish(self, loaded: LoadedSettings, rejected: Mapping[str, str]) -> None:
        described = {
            name: f"{problem}; its previous configuration stays in use" if name in self._sources else problem
            for name, problem in rejected.items()
        }
        self._published.publish(pack_settings(loaded._replace(rejected=described)))


def _followed(sources: "Mapping[str, Settings]") -> _Identities:
    """Return the other files that the sources depend on, with their identities when the settings were read."""
    return {file: identity for settings in sources.values() for file, identity in settings.followed.items()}
