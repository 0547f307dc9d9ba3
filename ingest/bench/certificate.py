"""Makes a certificate for the simulated API, issued by a CA that only the bench trusts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import trustme


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM files, which exist as long as their folder.

    Attributes:
        authority: the CA that clients trust.
        chain: the certificates that the server sends.
        key: the server's private key.
    """

    authority: Path
    chain: Path
    key: Path

    @classmethod
    def issue(cls, folder: Path, address: str = "127.0.0.1") -> Self:
        """Make a CA, and a certificate (ECDSA) of this CA for a server at this address.

        Args:
            folder: a private folder. Existing files are replaced.
            address: the address in the certificate.
        """
        made = cls(folder / "authority.pem", folder / "certificate.pem", folder / "key.pem")
        authority = trustme.CA()
        issued = authority.issue_cert(address)
        made.authority.write_bytes(authority.cert_pem.bytes())
        made.chain.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        made.key.write_bytes(issued.private_key_pem.bytes())
        return made

    def api_options(self) -> list[str]:
        """The options of `ingest upstream`."""
        return [f"--tls-cert={self.chain}", f"--tls-key={self.key}"]
