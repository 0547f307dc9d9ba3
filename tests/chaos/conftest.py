"""Starts the chaos run first, because it takes longer than any other test, which run concurrently."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name != "test_chaos.py")
