"""The secrets of a webhook, from files. While a secret is rotated, the old and the new one are valid."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from ingest.api.webhooks.keys import Key, ParseKey
from ingest.files.regular import read_text
from ingest.files.watch import WatchedFiles

_LARGEST = 64 * 1024


class SecretFiles:
    """Files with one secret in each line, except empty lines and comments (`# …`).

    Args:
        paths: The paths of the files.
        parse: Makes a key of a secret.

    Raises:
        ValueError: A file cannot be read or used. The message names the file, without a secret.
    """

    def __init__(self, paths: Sequence[Path], parse: ParseKey) -> None:
        self._paths = tuple(paths)
        self._parse = parse
        self.keys: Sequence[Key] = self._read()

    @classmethod
    def unread(cls, paths: Sequence[Path], parse: ParseKey) -> Self:
        """Return files that are read when they are watched."""
        made = cls((), parse)
        made._paths = tuple(paths)
        return made

    def watched(self, webhook: str) -> WatchedFiles:
        """The files of this webhook, read at the start of a process and when they change. An unusable file then changes nothing.

        A process that starts again inherits the secrets that its parent once read. They may have been revoked, so none
        is valid until the files have been read.
        """
        self.keys = ()
        return WatchedFiles(f"the webhook {webhook}", self._paths, self._reload)

    async def _reload(self) -> None:
        self.keys = await asyncio.to_thread(self._read)

    def _read(self) -> Sequence[Key]:
        return tuple(key for path in self._paths for key in self._read_one(path))

    def _read_one(self, path: Path) -> Sequence[Key]:
        lines = read_text(path, _LARGEST, "a file of secrets").split("\n")
        secrets = [secret for line in lines if (secret := line.strip()) and not secret.startswith("#")]
        if not secrets:
            raise ValueError(f"{path} contains no secret")
        try:
            return [self._parse(secret) for secret in secrets]
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
