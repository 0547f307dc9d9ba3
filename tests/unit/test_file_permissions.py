"""A file is trusted or continued only if no other user could have written it."""

import os
import stat
from pathlib import Path

import pytest

from ingest.files.permissions import NotTrusted, private_problem, problem_of, require_trusted

USER, GROUP = 1000, 500
FILE, FOLDER, STICKY = stat.S_IFREG, stat.S_IFDIR, stat.S_IFDIR | stat.S_ISVTX


def status(mode: int, user: int = USER, group: int = GROUP) -> os.stat_result:
    return os.stat_result((mode, 1, 1, 1, user, group, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "user", "group"),
    [
        (FILE | 0o600, USER, GROUP),
        (FILE | 0o644, 0, 0),
        # A secret of Kubernetes with `fsGroup`, and files where each user has a group with the same number.
        (FILE | 0o440, 0, GROUP),
        (FILE | 0o664, USER, USER),
        (FILE | 0o664, USER, 0),
    ],
)
def test_a_file_that_only_root_and_its_user_may_change_is_trusted(mode: int, user: int, group: int) -> None:
    assert problem_of(status(mode, user, group), USER, is_above=False) is None


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (status(FILE | 0o600, USER + 1), "belongs to another user (1001)"),
        (status(FILE | 0o646), "may be changed by every user"),
        (status(FILE | 0o660), "may be changed by the group 500"),
        (status(FILE | 0o660, 0), "may be changed by the group 500"),
        # Another user could add a module.
        (status(STICKY | 0o777, 0), "may be changed by every user"),
    ],
)
def test_a_file_or_folder_that_others_may_change_is_not_trusted(found: os.stat_result, problem: str) -> None:
    assert problem_of(found, USER, is_above=False) == problem


def test_a_folder_above_is_trusted_if_others_cannot_replace_its_files() -> None:
    assert problem_of(status(STICKY | 0o777, 0), USER, is_above=True) is None
    assert problem_of(status(FOLDER | 0o777, 0), USER, is_above=True) == "may be changed by every user"
    assert problem_of(status(STICKY | 0o755, USER + 1), USER, is_above=True) == "belongs to another user (1001)"


def test_the_folders_of_a_link_and_of_its_target_are_checked(tmp_path: Path) -> None:
    safe, unsafe = tmp_path / "safe", tmp_path / "unsafe"
    safe.mkdir()
    unsafe.mkdir()
    (safe / "file").touch()
    (unsafe / "file").touch()
    (safe / "link").symlink_to(unsafe / "file")
    (unsafe / "link").symlink_to(safe / "file")
    unsafe.chmod(0o777)

    require_trusted(safe / "file")
    for path in (safe / "link", unsafe / "link", unsafe / "file"):
        with pytest.raises(NotTrusted, match="not trusted") as raised:
            require_trusted(path)
        assert raised.value.strerror == f"the folder {unsafe} may be changed by every user, so that it is not trusted"


def test_a_file_of_another_user_is_not_private(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch(0o600)

    assert private_problem(path.stat(), os.geteuid()) is None
    assert private_problem(path.stat(), os.geteuid() + 1) == "belongs to another user"
