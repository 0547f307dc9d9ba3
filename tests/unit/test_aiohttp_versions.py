"""The limits on connections extend aiohttp's protocol, and are known to work with these versions of it."""

import aiohttp

KNOWN = {"3.14"}


def test_the_limits_on_connections_were_checked_with_this_version_of_aiohttp() -> None:
    version = ".".join(aiohttp.__version__.split(".")[:2])

    assert version in KNOWN, (
        "read how aiohttp.web.RequestHandler begins and ends a connection, calls handle_error and writes responses, run the "
        "tests of the HTTP API and add the version"
    )
