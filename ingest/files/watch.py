"""Watches files for changes, because mounted secrets and certificates are rotated while workers run.

A file counts as changed when its inode, size or modification time differs. Symbolic links are followed because Kubernetes replaces
mounted secrets behind one. A change is loaded after two identical checks in a row, so that no file is read while it is written.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from ingest.telemetry.logs import get_logger

_log = get_logger("files")

# Seconds between two checks. A change is in use after at most three checks.
CHECK_EVERY = 1.0
# Seconds without checks after an unexpected failure.
_AFTER_FAILURE = 30.0
Identity = tuple[int, ...] | None
"""Identifies the content of a file. None if it does not exist."""


class WatchedFiles:
    """Files that are only useful together, such as a certificate and its key.

    Args:
        settings: names of the settings, for messages.
        paths: the files.
        load: loads the content. It raises `ValueError` or `OSError` if the content is unusable, and then changes nothing.
    """

    def __init__(self, settings: str, paths: Sequence[Path], load: Callable[[], Awaitable[None]]) -> None:
        self._settings = settings
        self._paths = tuple(paths)
        self._load = load
        self._used: tuple[Identity, ...] | None = None
        self._seen: tuple[Identity, ...] | None = None
        self._failed: tuple[Identity, ...] | None = None

    async def check(self) -> None:
        """Load the files if they have changed, but not since the last check."""
        found = await asyncio.to_thread(self._identify)
        if found == self._used:
            self._seen = None
        elif found == self._seen:
            await self._use(found)
        else:
            self._seen = found

    async def start(self) -> None:
        """Load the files for the first time."""
        await self._use(await asyncio.to_thread(self._identify))

    async def _use(self, found: tuple[Identity, ...]) -> None:
        is_first = self._used is None
        try:
            await self._load()
        except (OSError, ValueError) as error:
            # Logged once for each content. The load is retried anyway, because the content may not be the reason.
            if found != self._failed:
                _log.error("secret_not_reloaded", settings=self._settings, error=_text(error))
            self._failed = found
            return
        self._used, self._failed = found, None
        if not is_first:
            _log.info("secret_reloaded", settings=self._settings)

    def _identify(self) -> tuple[Identity, ...]:
        return tuple(identity_of(path) for path in self._paths)


@asynccontextmanager
async def watching(files: Sequence[WatchedFiles], every: float = CHECK_EVERY) -> AsyncIterator[None]:
    """Load the files and check them regularly. Without files, no task is started."""
    if not files:
        yield
        return
    for watched in files:
        await watched.start()
    checking = asyncio.create_task(_check_regularly(files, every))
    try:
        yield
    finally:
        checking.cancel()
        with suppress(asyncio.CancelledError):
            await checking


async def _check_regularly(files: Sequence[WatchedFiles], every: float) -> None:
    while True:
        await asyncio.sleep(every)
        try:
            for watched in files:
                await watched.check()
        except Exception:  # noqa: BLE001  e.g. no thread can be started. Rotation continues after a pause
            _log.exception("secret_not_reloaded")
            await asyncio.sleep(_AFTER_FAILURE)


def identity_of(path: Path) -> Identity:
    """Return the identity of the content of a file, without reading it."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _text(error: Exception) -> str:
    """Describe an error without revealing the content of the file."""
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)
