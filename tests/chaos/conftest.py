"""The chaos run takes longer than any other test: it begins first, and the others go on beside it."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name != "test_chaos.py")
