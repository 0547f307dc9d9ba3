"""Version, changelog, tag and the kept release agree before a release is built."""

import zipfile
from dataclasses import replace
from datetime import date
from pathlib import Path

import changelog
import pytest
import release
import yaml
from keep import keep

ROOT = Path(__file__).parents[2]
UNRELEASED = "# Changes\n\n## [Unreleased]\n\n### Added\n\n- A thing.\n"
RELEASED = "# Changes\n\n## [Unreleased]\n\n## [0.2.0] - 2026-11-22\n\n### Added\n\n- A thing.\n"
LATER = RELEASED + "\n## [0.1.0] - 2026-01-02\n\n- The first.\n"


@pytest.fixture
def source(tmp_path: Path) -> release.Source:
    return release.Source(tmp_path, "0.2.0", RELEASED, "abc", 0, ["v0.2.0"], [])


def test_a_release_needs_matching_version_changelog_and_tag(source: release.Source) -> None:
    assert release.problems(source, "v0.2.0") == []
    assert release.problems(source, None) == []


@pytest.mark.parametrize(
    ("changed", "tag", "says"),
    [
        ({"version": "0.2"}, None, "not like 1.2.3"),
        ({"version": "0.3.0", "tags": ["v0.3.0"]}, None, "its newest release is 0.2.0"),
        ({"changelog": UNRELEASED}, None, "'Unreleased' contains entries"),
        ({"changelog": "# Changes\n"}, None, "contains no release"),
        ({"changelog": RELEASED.replace(" - 2026-11-22", "")}, None, "needs a date"),
        ({"changelog": RELEASED.replace("2026-11-22", "2026-13-40")}, None, "needs a date"),
        ({"changelog": "## [0.2.0] - 2026-11-22\n"}, None, "is empty"),
        ({}, "v0.3.0", "the tag is v0.3.0"),
        ({"tags": []}, None, "the commit has no tag v0.2.0"),
        ({"changed": [" M README.md"]}, None, "1 files differ from the commit: M README.md"),
        ({"changelog": LATER}, None, "must contain only the previous release, order_ingest-0.1.0.tar.xz"),
    ],
)
def test_each_disagreement_is_named(
    source: release.Source, changed: dict[str, object], tag: str | None, says: str
) -> None:
    [problem] = [line for line in release.problems(replace(source, **changed), tag) if says in line]

    assert "\n" not in problem


def test_unreleased_entries_become_a_version_with_its_date() -> None:
    text = changelog.prepared("0.2.0", UNRELEASED, date(2026, 11, 22))

    assert text == RELEASED
    assert changelog.disagreements("0.2.0", text) == []
    for version, twice in (("0.2.0", RELEASED), ("0.3.0", RELEASED)):
        with pytest.raises(ValueError, match=r"already contains|is empty"):
            changelog.prepared(version, twice, date(2026, 11, 22))


def test_the_changelog_of_this_project_can_be_read() -> None:
    found = changelog.sections((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))

    assert found[0].name == changelog.UNRELEASED
    assert all(section.text for section in found[1:])


def test_entries_that_are_not_released_can_become_the_version_of_this_project() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = release.source_in(ROOT).version

    if version not in {section.name for section in changelog.released(text)}:
        # A version has no entries when it has just begun.
        heading = f"## [{changelog.UNRELEASED}]"
        text = changelog.prepared(version, text.replace(heading, f"{heading}\n\n- A thing."), date(2026, 11, 26))

    assert changelog.disagreements(version, text) == []


@pytest.mark.parametrize(
    ("version", "names"),
    [("1.2.3", ["i:1.2.3", "i:1.2", "i:latest"]), ("1.2.3rc1", ["i:1.2.3rc1"])],
)
def test_an_image_is_named_for_its_version_and_only_a_release_is_the_latest(version: str, names: list[str]) -> None:
    assert release.image_tags("i", version) == names


def test_the_release_that_is_kept_replaces_the_one_before(source: release.Source, tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("ingest/services/worker.py", "ingest/lab/data/orders.gz", "order_ingest-0.1.0.dist-info/METADATA"):
            archive.writestr(name, name)
    folder = tmp_path / "tests" / "releases"
    keep(wheel, "0.0.9", folder)
    first = keep(wheel, "0.1.0", folder).read_bytes()

    assert [path.name for path in folder.iterdir()] == ["order_ingest-0.1.0.tar.xz"]
    assert keep(wheel, "0.1.0", folder).read_bytes() == first
    assert release.problems(replace(source, changelog=LATER), None) == []


def test_every_action_of_a_workflow_is_pinned_by_commit_and_permissions_are_given_job_by_job() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = path.read_text(encoding="utf-8")
        used = [line for line in text.splitlines() if "uses:" in line]
        workflow = yaml.safe_load(text)

        assert used
        for line in used:
            assert len(line.partition("@")[2].partition(" ")[0]) == 40, line
            assert " # v" in line, line
        assert workflow["permissions"] in ({}, {"contents": "read"})
