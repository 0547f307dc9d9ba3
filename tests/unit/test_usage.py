"""Examples in help texts can be copied into a shell."""

import shlex

import pytest

from ingest.cli import COMMANDS, GROUPS
from ingest.cli.terminal.usage import lines_to_copy

EXAMPLES = (
    "ingest status",
    """ingest status --json | jq -r '.sources[] | select(.queue.dead > 0) | .source'""",
    """curl -d '{"order_ids": ["536365"]}' -H 'Content-Type: application/json' http://127.0.0.1:8080/v1/orders""",
)


@pytest.mark.parametrize("width", [20, 60, 80])
@pytest.mark.parametrize("example", EXAMPLES)
def test_a_long_example_is_divided_into_lines_that_a_shell_reads_as_one(example: str, width: int) -> None:
    lines = list(lines_to_copy(example, width))

    # A shell removes these line ends first.
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(example)
    assert all(len(f"  {line}") <= width or len(shlex.split(line.removesuffix("\\"))) == 1 for line in lines)


def test_each_command_is_in_one_group() -> None:
    assert sum(map(len, GROUPS.values())) == len(COMMANDS)
