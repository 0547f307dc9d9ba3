"""The list of safeguards that `make ablation` tries agrees with the code and the tests."""

import ast
from functools import cache

from ablation.safeguards import PARTS, ROOT, safeguards


@cache
def names_in(file: str) -> set[str]:
    """The names of a file's tests."""
    path = ROOT / file
    body = ast.parse(path.read_bytes()).body if path.is_file() else []
    nodes = [each for node in body for each in (node, *getattr(node, "body", ()))]
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_change_of_each_safeguard_applies_exactly_once() -> None:
    for each in safeguards():
        assert each.without(), each.name


def test_each_safeguard_names_tests_that_exist() -> None:
    for each in safeguards():
        assert each.tests, each.name
        for test in each.tests:
            test_name, bracket, variant = test.partition("[")
            assert bool(bracket) == variant.endswith("]"), (each.name, test)
            file, *names = test_name.split("::")
            assert names, (each.name, "name a test: its file as a whole is slow")
            assert names[-1] in names_in(file), (each.name, test)


def test_names_are_unique_and_each_part_has_its_share() -> None:
    names = [each.name for each in safeguards()]

    assert len(set(names)) == len(names)
    assert len(names) >= PARTS
