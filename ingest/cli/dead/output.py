"""Where data goes: standard output, or a file that appears under its name only when it is whole."""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ingest.cli.streams import CannotWrite


@contextmanager
def standard_output() -> Iterator[IO[str]]:
    """Standard output, in UTF-8 whatever the locale, and buffered."""
    try:
        with open(sys.stdout.fileno(), "w", encoding="utf-8", newline="\n", closefd=False) as stream:
            yield stream
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CannotWrite(f"cannot write to standard output: {error.strerror}") from error


@contextmanager
def new_file(path: Path, *, replace: bool) -> Iterator[IO[str]]:
    """A file written beside its place, and put there at the end; if anything goes wrong before, it is removed.

    It is its owner's alone, whatever was there before.

    Raises:
        CannotWrite: also if there is one and `replace` does not allow to replace it.
    """
    try:
        is_folder = path.is_dir()
    except OSError as error:
        raise CannotWrite(f"cannot write {path}: {error.strerror}") from error
    if is_folder:
        raise CannotWrite(f"cannot write {path}: it is a folder")
    temporary = path.with_name(f".export-{secrets.token_hex(4)}.part")
    try:
        _require_free(path, replace=replace)
        with open(temporary, "x", encoding="utf-8", newline="\n", opener=_for_its_owner) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        # Somebody else may have made one in the meantime.
        _require_free(path, replace=replace)
        temporary.replace(path)
    except OSError as error:
        raise CannotWrite(f"cannot write {path}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _for_its_owner(path: str, flags: int) -> int:
    # Customers' data is in it: whoever else may read it has to be let in by a person.
    return os.open(path, flags, 0o600)


def _require_free(path: Path, *, replace: bool) -> None:
    if path.exists() and not path.is_file():
        raise CannotWrite(f"cannot write {path}: it is no file")
    if path.exists() and not replace:
        raise CannotWrite(f"{path} is there already: choose another name, or replace it with --force")
