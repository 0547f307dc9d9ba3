"""The secrets in use: as the settings had them, and read again from their files when those change."""

import asyncio
from collections.abc import Callable, Mapping

from ingest.domain.errors import ConfigError
from ingest.files.regular import open_regular
from ingest.files.watch import WatchedFiles
from ingest.upstream.access.endpoint import Secret

# A secret is small. A file of another kind is not read to its end.
_LARGEST = 64 * 1024


class Secrets:
    """Values by role.

    Attributes:
        values: the current values. The mapping is replaced, never changed.

    Args:
        secrets: as they were when the settings were read.
    """

    def __init__(self, secrets: Mapping[str, Secret]) -> None:
        self._secrets = secrets
        self._from_files = {secret.file: secret for secret in secrets.values() if secret.file is not None}
        self._names = ", ".join(f"{secret.setting}" for secret in self._from_files.values())
        self.values: Mapping[str, str] = {role: secret.value for role, secret in secrets.items()}

    async def start(self) -> None:
        """Read the files before the first request, because the value in the settings may have been revoked since.

        Raises:
            ConfigError: a file cannot be used now.
        """
        try:
            await self._load()
        except (OSError, ValueError) as error:
            # A file of headers may be empty at first. Then there is no earlier value either.
            if any(secret.value for secret in self._from_files.values()):
                reason = error.strerror if isinstance(error, OSError) else str(error)
                raise ConfigError(f"{self._names}: cannot be used: {reason}") from None

    def files(self, on_change: Callable[[], None]) -> list[WatchedFiles]:
        """Return the files to watch, all together because a user and a password are changed together."""

        async def load() -> None:
            await self._load()
            on_change()

        return [WatchedFiles(self._names, [*self._from_files], load)] if self._from_files else []

    async def _load(self) -> None:
        self.values = await asyncio.to_thread(_read, self._secrets)


def _read(secrets: Mapping[str, Secret]) -> Mapping[str, str]:
    return {role: _current(secret) for role, secret in secrets.items()}


def _current(secret: Secret) -> str:
    if secret.file is None:
        return secret.value
    with open_regular(secret.file) as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError(f"{secret.setting}: is larger than {_LARGEST} bytes")
    if not content.strip():
        raise ValueError(f"{secret.setting}: is empty")
    try:
        return secret.check(content.decode().strip())
    except UnicodeDecodeError:
        raise ValueError(f"{secret.setting}: is not UTF-8 text") from None
    except ValueError as error:
        raise ValueError(f"{secret.setting}: {error}") from None
