"""Shared fixtures of this folder. `python -m deploy` provides the others, see `Stage`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deploy.shell import say, saying
from deploy.stage import STAGE

if TYPE_CHECKING:
    from collections.abc import Generator

    from deploy.build import Built
    from deploy.engine import Docker
    from deploy.project import Project

_HERE = Path(__file__).parent
_LOG_LINES = 25
_HAS_FAILED = pytest.StashKey[bool]()


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Exclude these tests from `make test`, because they need root."""
    asked = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    return None if any(path.is_relative_to(_HERE) for path in asked) else True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the containers' logs after the first failure, because the containers are removed at the end."""
    report = yield
    if report.failed and _HAS_FAILED not in item.config.stash:
        words = item.config.stash[STAGE].project.last_words(_LOG_LINES)
        if words:
            item.config.stash[_HAS_FAILED] = True
            report.sections.append(("containers", words))
    return report


@pytest.fixture(scope="session")
def docker(pytestconfig: pytest.Config) -> Docker:
    return pytestconfig.stash[STAGE].docker


@pytest.fixture(scope="session")
def built(pytestconfig: pytest.Config) -> Built:
    return pytestconfig.stash[STAGE].image


@pytest.fixture(scope="session")
def system(docker: Docker, pytestconfig: pytest.Config) -> Project:
    """The system, up and healthy, with the demo's producer at work."""
    say(f"`docker compose up --wait` on an engine {docker('version', '--format', '{{.Server.Version}}').strip()}")
    project = pytestconfig.stash[STAGE].project
    with saying("everything is healthy"):
        project.up()
    return project
