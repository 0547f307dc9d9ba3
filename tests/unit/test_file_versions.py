"""The versions of the files that the behaviour of a source depends on."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.settings.versions import version_of_table, versions_of


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "versioned_shop" / "rules"
    folder.mkdir(parents=True)
    for file in (folder.parent / "__init__.py", folder / "__init__.py"):
        file.write_text("raise RuntimeError('imported')\n")
    sys.path.insert(0, str(tmp_path))
    yield folder
    sys.path.remove(str(tmp_path))


def test_the_module_of_a_transform_has_a_version_without_being_imported(package: Path) -> None:
    module = package / "own.py"
    module.write_text("def transform(order): return order\n")
    before = versions_of([], "versioned_shop.rules.own:transform")
    module.write_text("def transform(order): return None\n")

    after = versions_of([], "versioned_shop.rules.own:transform")

    assert [*before] == [*after] == ["own.py"]
    assert before != after


@pytest.mark.parametrize(
    "transform", ["versioned_shop.missing:transform", "versioned_nowhere.own:transform", "sys:exit"]
)
def test_a_transform_without_a_file_has_no_version(package: Path, transform: str) -> None:
    assert versions_of([package / "missing.toml"], transform) == {}


def test_the_version_of_a_source_does_not_depend_on_its_webhook() -> None:
    table = {"upstream": {"url": "https://shop.example/{order_id}"}, "coalesce": "5s"}

    assert version_of_table({**table, "webhook": {"secret_files": ["a"]}}) == version_of_table(table)
    assert version_of_table({**table, "coalesce": "6s"}) != version_of_table(table)
