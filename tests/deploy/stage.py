"""What the tests look at, handed to pytest as a plugin."""

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
    """What there is when the tests begin.

    Attributes:
        image: built on this engine.
        project: the system, which is not up yet.
        plots: the folder for the dashboard's panels; None if nobody wants to look at them.
    """

    docker: Docker
    image: Built
    project: Project
    plots: Path | None

    def pytest_configure(self, config: pytest.Config) -> None:
        """Put it where fixtures find it."""
        config.stash[STAGE] = self


STAGE = pytest.StashKey[Stage]()
