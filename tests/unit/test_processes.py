"""The common parts of all long-running commands."""

import pytest

from ingest.process.lifecycle import AddressTaken, listen


def test_an_address_that_cannot_be_used_is_an_error_with_its_reason() -> None:
    with pytest.raises(AddressTaken) as unresolved:
        listen("/metrics", "a..b", 1, "set it")
    with pytest.raises(AddressTaken) as elsewhere:
        listen("/metrics", "192.0.2.1", 0, "set it")

    assert str(unresolved.value).startswith("/metrics cannot listen on a..b:1: ")
    assert "Unknown error" not in str(unresolved.value)
    assert str(elsewhere.value) == "/metrics cannot listen on 192.0.2.1:0: Cannot assign requested address; set it"


@pytest.mark.parametrize("host", ["\u00e4..x", "\u00e4" * 70])
def test_what_cannot_be_the_name_of_a_host_is_such_an_error_too(host: str) -> None:
    with pytest.raises(AddressTaken) as refused:
        listen("/metrics", host, 1, "set it")

    assert str(refused.value) == f"/metrics cannot listen on {host}:1: the host is not a name or an address; set it"
