"""The file of API keys. A manual line is accepted or rejected with its number, and changes replace the whole file."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ingest.domain.api_key import ApiKey, RateLimit, Scope, digest_of
from ingest.operations import api_keys
from ingest.operations.api_keys import CannotChangeKeys, InvalidKeysFile, add_key, read_keys, remove_keys

SHA = "ab" * 32
OTHER = "cd" * 32


def key(name: str, limit: RateLimit | None = None) -> ApiKey:
    return ApiKey(name, digest_of(name), frozenset({Scope.ENQUEUE, Scope.READ}), limit)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_keys_are_read_as_they_were_added(path: Path) -> None:
    of_two = ApiKey("of-two", digest_of("of-two"), frozenset(Scope), sources=frozenset({"shop-de", "shop-fr"}))
    added = [key("shop"), key("support", RateLimit(0.5, 3)), key("a.b_c-d", RateLimit(1e6, 1)), of_two]

    for one in added:
        add_key(path, one)

    assert read_keys(path) == added


def test_a_person_may_write_the_file(path: Path) -> None:
    path.write_bytes(
        b'\xef\xbb\xbf{"scopes": ["erase"],"name":"shop", "sha256":"' + SHA.encode() + b'", "rate": 2}\r\n\r\n'
        b'   {"name": "other", "sha256": "' + OTHER.encode() + b'", "scopes": ["read", "read"]}'
    )

    first, second = read_keys(path)

    assert first == ApiKey("shop", bytes.fromhex(SHA), frozenset({Scope.ERASE}), RateLimit(2.0, 2))
    assert second == ApiKey("other", bytes.fromhex(OTHER), frozenset({Scope.READ}))


def test_a_file_without_keys_has_none(path: Path) -> None:
    path.touch()

    assert read_keys(path) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("shop", "malformed"),
        ("[]", "Expected `object`"),
        ('{"name": "b", "sha256": "SHA", "scopes": ["read"], "scope": ["erase"]}', "unknown field `scope`"),
        ('{"name": "b", "sha256": "SHA"}', "missing required field `scopes`"),
        ('{"name": "b", "sha256": "SHA", "scopes": []}', "$.scopes"),
        (
            '{"name": "b", "sha256": "SHA", "scopes": ["hidden"]}',
            "scopes: must be of enqueue, push, read, personal, operate, erase",
        ),
        ('{"name": "b", "sha256": "SHA", "scopes": "read"}', "$.scopes"),
        ('{"name": "b", "sha256": "hidden", "scopes": ["read"]}', "sha256: must be 64 hexadecimal digits"),
        ('{"name": "b", "sha256": "SHA\\n", "scopes": ["read"]}', "sha256: must be 64 hexadecimal digits"),
        ('{"name": "b c", "sha256": "SHA", "scopes": ["read"]}', "name: must be up to 64"),
        ('{"name": "b", "sha256": "SHA", "scopes": ["read"], "sources": []}', "$.sources"),
        (
            '{"name": "b", "sha256": "SHA", "scopes": ["read"], "sources": ["Hidden"]}',
            "sources: must be names of sources",
        ),
        ('{"name": "b\\n", "sha256": "SHA", "scopes": ["read"]}', "name: must be up to 64"),
        ('{"name": "anonymous", "sha256": "SHA", "scopes": ["read"]}', "name: must be up to 64"),
        ('{"name": "b", "sha256": "SHA", "scopes": ["read"], "rate": 0}', "$.rate"),
        ('{"name": "b", "sha256": "SHA", "scopes": ["read"], "rate": 1e999}', "$.rate"),
        ('{"name": "b", "sha256": "SHA", "scopes": ["read"], "burst": 5}', "a burst needs a rate"),
        ('{"name": "b", "sha256": "SHA", "scopes": ["read"], "rate": 1, "burst": 0}', "$.burst"),
        ('{"name": "b", "sha256": "SHA", "scopes": ["read"], "created": "2026-11-22"}', "$.created"),
        ('{"name": "a", "sha256": "SHA", "scopes": ["read"]}', "another line has the same name or sha256"),
        ('{"name": "b", "sha256": "OTHER", "scopes": ["read"]}', "another line has the same name or sha256"),
        ("[" * 100_000, "malformed|recursion|Expected"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_without_what_it_holds(path: Path, line: str, problem: str) -> None:
    good = f'{{"name": "a", "sha256": "{OTHER}", "scopes": ["read"]}}'
    path.write_text(f"{good}\n\n{line.replace('SHA', SHA).replace('OTHER', OTHER)}\n")

    with pytest.raises(InvalidKeysFile) as refused:
        read_keys(path)

    said = str(refused.value)
    assert said.startswith(f"INGEST_API_KEYS_FILE: {path}, line 3: ")
    assert any(text in said for text in problem.split("|"))
    assert "hidden" not in said
    assert refused.value.exit_code == 2


def test_bytes_that_are_not_text_are_refused_by_their_line(path: Path) -> None:
    path.write_bytes(b'{"name": "\xff\xfe", "sha256": "", "scopes": ["read"]}')

    with pytest.raises(InvalidKeysFile, match="line 1"):
        read_keys(path)


def test_what_is_no_file_of_keys_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    large = tmp_path / "large"
    large.write_bytes(b"\n" * (1024 * 1024 + 1))
    many = tmp_path / "many"
    many.write_text(
        "".join(f'{{"name":"a{i}","sha256":"{i:064x}","scopes":["read"]}}\n' for i in range(api_keys.MOST_KEYS + 1))
    )

    refused = {}
    for path in (pipe, large, many, tmp_path, tmp_path / "missing"):
        with pytest.raises(InvalidKeysFile) as error:
            read_keys(path)
        refused[path.name] = str(error.value)

    assert "is not a regular file" in refused["pipe"]
    assert "is larger than 1,048,576 bytes" in refused["large"]
    assert "more than 2,000 keys" in refused["many"]
    assert "is not a regular file" in refused[tmp_path.name]
    assert "No such file or directory" in refused["missing"]


def test_only_its_owner_may_read_a_file_that_is_created(path: Path) -> None:
    before = os.umask(0)
    try:
        add_key(path, key("shop"))
    finally:
        os.umask(before)

    assert mode(path) == 0o600


@pytest.mark.parametrize(("given", "kept"), [(0o640, 0o640), (0o664, 0o644), (0o400, 0o400)])
def test_a_file_that_is_changed_stays_readable_for_those_who_could_and_writable_for_nobody_else(
    path: Path, given: int, kept: int
) -> None:
    add_key(path, key("shop"))
    path.chmod(given)

    add_key(path, key("support"))

    assert mode(path) == kept


def test_other_lines_stay_as_a_person_wrote_them(path: Path) -> None:
    written = f'  {{"scopes": ["erase"],"name":"hand", "sha256":"{SHA}"}}\n\n'
    path.write_text(written.rstrip("\n"))

    add_key(path, key("shop"))
    add_key(path, key("support"))
    removed = remove_keys(path, ["shop", key("support").key_id, "nobody"])

    assert [one.name for one in removed] == ["shop", "support"]
    assert path.read_text() == written.rstrip("\n") + "\n"


def test_a_name_is_not_used_twice_and_nothing_has_changed_then(path: Path) -> None:
    add_key(path, key("shop"))
    before = path.read_bytes()

    with pytest.raises(CannotChangeKeys, match="a key named shop exists"):
        add_key(path, ApiKey("shop", digest_of("x"), frozenset({Scope.READ})))

    assert path.read_bytes() == before


def test_a_file_that_cannot_be_used_is_not_changed(path: Path) -> None:
    path.write_text("not a key\n")

    with pytest.raises(InvalidKeysFile):
        add_key(path, key("shop"))
    with pytest.raises(InvalidKeysFile):
        remove_keys(path, ["shop"])

    assert path.read_text() == "not a key\n"
    assert list(path.parent.iterdir()) == [path]


def test_a_symbolic_link_is_read_and_neither_followed_nor_replaced_by_changes(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    add_key(target, key("shop"))
    link.symlink_to(target)
    before = target.read_bytes()

    with pytest.raises(CannotChangeKeys, match="symbolic link"):
        add_key(link, key("support"))
    with pytest.raises(CannotChangeKeys, match="symbolic link"):
        remove_keys(link, ["shop"])

    assert [one.name for one in read_keys(link)] == ["shop"]
    assert link.is_symlink()
    assert target.read_bytes() == before


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(CannotChangeKeys, match="does not exist"):
        add_key(tmp_path / "missing" / "keys", key("shop"))


def test_changes_at_the_same_time_are_all_made(path: Path) -> None:
    names = [f"key-{number}" for number in range(40)]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: add_key(path, key(name)), names))
        list(pool.map(lambda name: remove_keys(path, [name]), names[::2]))

    assert sorted(one.name for one in read_keys(path)) == sorted(names[1::2])
