"""Where data is written: standard output, or a file that appears under its name only when it is complete."""

import fcntl
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ingest.files.permissions import private_problem
from ingest.process.standard_streams import CannotWrite, discard_unread

# It may hold customer data, so that the operator has to decide who else may read it.
_OWNER_ONLY = 0o600


@contextmanager
def standard_output() -> Iterator[IO[str]]:
    """Standard output, in UTF-8 whatever the locale, and buffered."""
    try:
        with open(sys.stdout.fileno(), "w", encoding="utf-8", newline="\n", closefd=False) as stream:
            try:
                yield stream
                stream.flush()
            except KeyboardInterrupt:
                discard_unread()  # closing would write it
                raise
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CannotWrite(f"cannot write to standard output: {error.strerror}") from error


@contextmanager
def new_file(path: Path, *, replace: bool, mode: int = _OWNER_ONLY) -> Iterator[IO[str]]:
    """A file that is written under a temporary name and renamed at the end. If anything fails before, it is removed.

    By default, only its owner may read it, whatever the permissions of a file that it replaces.

    Raises:
        CannotWrite: also if the file exists and may not be replaced.
    """
    temporary = path.parent / f".export-{secrets.token_hex(4)}.part"
    try:
        with _written_as(temporary, path, "x", replace=replace) as stream:
            os.fchmod(stream.fileno(), mode)
            yield stream
    finally:
        with suppress(OSError):
            temporary.unlink()


@contextmanager
def resumable_file(path: Path, *, replace: bool, resume: bool) -> Iterator[IO[str]]:
    """A file of lines that is written as `PATH.part` and renamed at the end. If anything fails before, the part stays.

    The stream is at its end, after the last complete line. Only its owner may read it.

    Args:
        path: of the complete file.
        replace: whether to replace the file, and a part.
        resume: whether to continue the part.

    Raises:
        CannotWrite: also if the file exists and may not be replaced, if there is nothing to resume, if there is a part and
            neither is chosen, if another program writes the part, or if it is not a private file of this user.
    """
    part = part_of(path)
    with _reported(path):
        if replace:
            part.unlink(missing_ok=True)
        _require_part(part) if resume else _require_no_part(part)
    with _written_as(part, path, "r+" if resume else "x+", replace=replace) as stream:
        # The opened file, which another user may have put there since.
        if resume and (problem := private_problem(os.fstat(stream.fileno()), os.geteuid())):
            raise CannotWrite(f"{part} {problem}")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotWrite(f"another program is writing {part}") from None
        _keep_complete_lines(stream)
        yield stream


@contextmanager
def _written_as(temporary: Path, path: Path, mode: str, *, replace: bool) -> Iterator[IO[str]]:
    """The file `temporary`, which is renamed to `path` when it is complete and on disk."""
    with _reported(path):
        _require_free(path, replace=replace)
        with open(temporary, mode, encoding="utf-8", newline="\n", opener=_owner_only) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            # Another program may have begun it again, or created the file, in the meantime.
            if not os.path.samestat(os.fstat(stream.fileno()), temporary.stat()):
                raise CannotWrite(f"another program has replaced {temporary}")
            _require_free(path, replace=replace)
            temporary.replace(path)


def part_of(path: Path) -> Path:
    """Return the name of a file while `resumable_file` writes it."""
    return path.with_name(f"{path.name}.part")


def is_resumable(part: Path) -> bool:
    """Return whether `resumable_file` would continue a part."""
    return os.path.lexists(part) and private_problem(part.lstat(), os.geteuid()) is None


def _require_part(part: Path) -> None:
    if not os.path.lexists(part):
        raise CannotWrite(f"there is no {part}: start without --resume")
    if problem := private_problem(part.lstat(), os.geteuid()):
        raise CannotWrite(f"{part} {problem}: begin again with --force, or in another folder")


def _require_no_part(part: Path) -> None:
    if os.path.lexists(part):
        continuing = "continue it with --resume, or " if is_resumable(part) else ""
        raise CannotWrite(f"{part} exists: {continuing}begin again with --force")


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotWrite(f"cannot write {path}: {error.strerror}") from error


def _keep_complete_lines(stream: IO[str]) -> None:
    """Cut off the line that the interrupted program did not complete, and move to the end."""
    raw = stream.buffer  # type: ignore[attr-defined]
    complete = sum(len(line) for line in raw if line.endswith(b"\n"))
    stream.seek(complete)
    stream.truncate()


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, _OWNER_ONLY)


def _require_free(path: Path, *, replace: bool) -> None:
    if path.exists() and not path.is_file():
        raise CannotWrite(f"cannot write {path}: it is {'a folder' if path.is_dir() else 'not a regular file'}")
    if path.exists() and not replace:
        raise CannotWrite(f"{path} exists: choose another name, or replace it with --force")
