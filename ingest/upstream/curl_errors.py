"""What libcurl's errors mean: in words, and whose they are."""

import pycurl

# The external API cannot have seen the request.
UNREACHED = frozenset(
    {
        pycurl.E_COULDNT_RESOLVE_PROXY,
        pycurl.E_COULDNT_RESOLVE_HOST,
        pycurl.E_COULDNT_CONNECT,
        pycurl.E_SSL_CONNECT_ERROR,
        pycurl.E_PEER_FAILED_VERIFICATION,
        pycurl.E_SSL_CACERT_BADFILE,
        97,  # CURLE_PROXY, for which pycurl has no name: a SOCKS proxy's refusal
    }
)
# libcurl, or our use of it, has failed: a handle that cannot be made, no memory, a callback of ours, a wrong argument,
# a call from within a callback.
OUR_OWN = frozenset({2, 27, 41, 42, 43, 45, 48, 65, 93})

# libcurl does not always say more than a number. The numbers are those of curl/curl.h, for pycurl does not name all of them.
_TEXTS = {
    1: "the address has a scheme that is not supported",
    3: "the address is no URL of HTTP",
    5: "the name of the proxy cannot be resolved",
    6: "the name of the host cannot be resolved",
    7: "cannot connect",
    8: "the answer is not valid HTTP",
    16: "the connection of HTTP/2 failed",
    18: "the answer ended before its announced length",
    23: "the answer cannot be received",
    28: "no answer in time",
    35: "the TLS connection cannot be made",
    47: "too many redirects",
    52: "the connection was closed before the answer",
    55: "the request cannot be sent",
    56: "the connection failed",
    58: "the client certificate cannot be used",
    59: "the cipher cannot be used",
    60: "the certificate is not accepted",
    61: "the body is not packed as its Content-Encoding says",
    77: "the file of trusted certificates cannot be read",
    80: "the TLS connection cannot be closed",
    83: "the issuer of the certificate is not accepted",
    91: "the certificate's status is not accepted",
    92: "a stream of HTTP/2 failed",
    95: "the connection of HTTP/3 failed",
    96: "the connection of QUIC failed",
    97: "the proxy refuses the connection",
    100: "the headers of the answer are too large",
}


def sentence(number: int, text: str) -> str:
    """An error of libcurl in words: its own where it has some."""
    return f"{text.strip() or _TEXTS.get(number, 'the request failed')} (curl {number})"
