"""For these tests: the queue as commands leave it, commands without servers, and scenes on real servers."""

import os
from collections.abc import Iterator

import pytest
from acceptance.dead_lettering import dead_lettered
from acceptance.queued import queued, sources
from integration.scenes import fragile, scene
from support import Cli, closing_cli

__all__ = ["dead_lettered", "fragile", "queued", "scene", "sources"]


@pytest.fixture
def plain() -> Iterator[Cli]:
    """Commands without servers and settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("INGEST_", "COLUMNS"))}
    with closing_cli(inherited) as cli:
        yield cli
