"""The system under test, passed to pytest as a plugin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.build import Built
    from deploy.engine import Docker
    from deploy.project import Project


@dataclass(frozen=True, eq=False)
class Stage:
    """The state at the beginning of the tests.

    Attributes:
        image: the image that was built on this engine.
        project: the system, which is not started yet.
        plots: the folder for the dashboard's panels, or None.
    """

    docker: Docker
    image: Built
    project: Project
    plots: Path | None

    def pytest_configure(self, config: pytest.Config) -> None:
        """Put it where fixtures find it."""
        config.stash[STAGE] = self


STAGE = pytest.StashKey[Stage]()
