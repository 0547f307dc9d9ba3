"""The secrets of a source, read from files again when they change: while a secret is rotated, the old and the new one are valid.

A change is noticed by the next request, at most a second later. A file that cannot be used, such as one that is being written, changes
nothing: the secrets that were read before stay in use.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ingest.api.webhooks.keys import Key, ParseKey
from ingest.telemetry.logs import get_logger

_log = get_logger("webhooks")

# Seconds between two looks at the files.
_LOOK_EVERY = 1.0
# Seconds without a change after which a file counts as written.
_SETTLED_AFTER = 1.0
_LARGEST = 64 * 1024

# What tells one content of a file from another; None if there is no such file.
_Identity = tuple[tuple[int, ...] | None, ...]
_MODIFIED = 3


class SecretFiles:
    """Files with one secret in each line; empty lines are left out.

    Args:
        paths: of the files.
        parse: makes a key of a secret.
        monotonic: the clock for looks at the files.
        wall: the clock of the files' times.

    Raises:
        ValueError: a file cannot be read or used; the message names it, and no secret.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        parse: ParseKey,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._paths = tuple(paths)
        self._parse = parse
        self._monotonic = monotonic
        self._wall = wall
        self._used = self._seen = self._identify()
        self._failed: _Identity | None = None
        self._looked_at = monotonic()
        self._keys = self._read()

    def keys(self) -> Sequence[Key]:
        """The keys of now."""
        now = self._monotonic()
        if now - self._looked_at >= _LOOK_EVERY:
            self._looked_at = now
            self._look()
        return self._keys

    def _look(self) -> None:
        found = self._identify()
        is_settled = found == self._seen or self._is_older(found)
        self._seen = found
        if found == self._used or not is_settled:
            return
        files = ", ".join(map(str, self._paths))
        try:
            self._keys = self._read()
        except ValueError as error:
            # Told once for each content; tried again all the same, as the reason may be another than the content.
            if found != self._failed:
                _log.warning("secret_not_reloaded", settings=files, error=str(error))
            self._failed = found
            return
        self._used, self._failed = found, None
        _log.info("secret_reloaded", settings=files)

    def _is_older(self, found: _Identity) -> bool:
        """Whether all files have not changed for a while."""
        now = self._wall()
        return all(identity is not None and now - identity[_MODIFIED] / 1e9 > _SETTLED_AFTER for identity in found)

    def _identify(self) -> _Identity:
        return tuple(_identity_of(path) for path in self._paths)

    def _read(self) -> Sequence[Key]:
        return tuple(key for path in self._paths for key in self._read_one(path))

    def _read_one(self, path: Path) -> Sequence[Key]:
        try:
            with path.open("rb") as file:
                content = file.read(_LARGEST + 1)
            lines = content.decode().split("\n")
        except OSError as error:
            raise ValueError(f"cannot read {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 text") from error
        if len(content) > _LARGEST:
            raise ValueError(f"{path} has more than {_LARGEST} bytes: it is not a file of secrets")
        secrets = [line.strip() for line in lines if line.strip()]
        if not secrets:
            raise ValueError(f"{path} has no secret")
        try:
            return [self._parse(secret) for secret in secrets]
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def _identity_of(path: Path) -> tuple[int, ...] | None:
    """The identity of a file, also behind a symbolic link, as Kubernetes replaces mounted secrets."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
