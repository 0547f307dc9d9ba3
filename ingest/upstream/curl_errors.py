"""Descriptions of libcurl errors, and which of them are errors of the client itself."""

import pycurl

# Errors with which the external API cannot have received the request.
NOT_SENT = frozenset(
    {
        pycurl.E_COULDNT_RESOLVE_PROXY,
        pycurl.E_COULDNT_RESOLVE_HOST,
        pycurl.E_COULDNT_CONNECT,
        pycurl.E_SSL_CONNECT_ERROR,
        pycurl.E_PEER_FAILED_VERIFICATION,
        pycurl.E_SSL_CACERT_BADFILE,
        97,  # CURLE_PROXY, a refusal by a SOCKS proxy; pycurl has no name for it
    }
)
# Errors of libcurl or of its use here: a handle that cannot be created, no memory, a failed callback, a wrong argument, a
# call from within a callback.
CLIENT_ERRORS = frozenset({2, 27, 41, 42, 43, 45, 48, 65, 93})

# libcurl does not always give a text. The numbers are from curl/curl.h, as pycurl does not name all of them.
_TEXTS = {
    1: "the scheme of the URL is not supported",
    3: "the address is not an HTTP URL",
    5: "the proxy name cannot be resolved",
    6: "the host name cannot be resolved",
    7: "cannot connect",
    8: "the response is not valid HTTP",
    16: "the HTTP/2 connection failed",
    18: "the response is shorter than its Content-Length",
    23: "the response cannot be received",
    28: "no response in time",
    35: "the TLS connection cannot be established",
    47: "too many redirects",
    52: "the connection was closed before the response",
    55: "the request cannot be sent",
    56: "the connection failed",
    58: "the client certificate cannot be used",
    59: "the cipher cannot be used",
    60: "the certificate is not accepted",
    61: "the body is not compressed as its Content-Encoding says",
    77: "the file of trusted certificates cannot be read",
    80: "the TLS connection cannot be closed",
    83: "the issuer of the certificate is not accepted",
    91: "the certificate status is not accepted",
    92: "an HTTP/2 stream failed",
    95: "the HTTP/3 connection failed",
    96: "the QUIC connection failed",
    97: "the proxy refuses the connection",
    100: "the response headers are too large",
}


def describe(number: int, text: str) -> str:
    """Describe a libcurl error, by its own text if it has one."""
    return f"{text.strip() or _TEXTS.get(number, 'the request failed')} (curl {number})"
