"""Makes a certificate for the simulated API, of an authority that nobody else trusts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import trustme


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM files; they last as long as their folder.

    Attributes:
        authority: what clients trust.
        chain: what the server sends.
        key: its private key.
    """

    authority: Path
    chain: Path
    key: Path

    @classmethod
    def issue(cls, folder: Path, address: str = "127.0.0.1") -> Self:
        """Make an authority, and of it a certificate (ECDSA) for a server at this address.

        Args:
            folder: a private one, which others cannot read; files in it are replaced.
            address: what the certificate is for.
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
