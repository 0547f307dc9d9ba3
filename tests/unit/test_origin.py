"""A server with several addresses gets connections at each of them."""

import socket

from ingest.upstream.http.http1_origin import rotated


def test_each_address_of_the_preferred_family_is_first_in_turn() -> None:
    tcp = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
    found = [(socket.AF_INET, *tcp, (f"192.0.2.{number}", 80)) for number in range(3)]
    last = (socket.AF_INET6, *tcp, ("2001:db8::1", 80, 0, 0))
    found = [*found, last]

    firsts = []
    for _ in range(6):
        found = rotated(found)
        firsts.append(found[0][4][0])

    assert firsts == [f"192.0.2.{number}" for number in (1, 2, 0, 1, 2, 0)]
    assert found[-1] == last
