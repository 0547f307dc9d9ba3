"""A file is trusted or continued only if no other user could have written it."""

import os
from pathlib import Path

from ingest.files.permissions import private_problem


def test_a_file_of_another_user_is_not_private(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch(0o600)

    assert private_problem(path.stat(), os.geteuid()) is None
    assert private_problem(path.stat(), os.geteuid() + 1) == "belongs to another user"
