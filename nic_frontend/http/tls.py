"""The certificate of a server that speaks HTTPS."""

from __future__ import annotations

import logging
import re
import ssl
from pathlib import Path

from ringbuffer.small_file import read_small_file

log = logging.getLogger(__name__)

CERTIFICATE = rb"-----BEGIN [A-Z0-9 ]*CERTIFICATE-----"
PRIVATE_KEY = rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----"


def read_certificate(path: Path) -> None:
    """Raises ValueError where the file has no certificate."""
    _find(CERTIFICATE, "certificate", path)


def read_private_key(path: Path) -> None:
    """Raises ValueError where the file has no private key."""
    _find(PRIVATE_KEY, "private key", path)


def _find(begin: bytes, what: str, path: Path) -> None:
    mend = f"give a {what} in PEM, text between -----BEGIN and -----END"
    if not re.search(begin, read_small_file(path, mend)):
        raise ValueError(f"{path} has no {what}: {mend}")


class Certificate:
    """The certificate that handshakes use, which may be renewed while the server runs.

    Raises OSError or ValueError when the files cannot serve.
    """

    def __init__(self, certificate: Path, key: Path | None, client_ca: Path | None = None) -> None:
        self._files = certificate, key, client_ca
        self.context = server_context(certificate, key, client_ca)

    def read_again(self) -> None:
        """New handshakes use what the files hold now. Files that cannot serve change nothing."""
        try:
            self.context = server_context(*self._files)
        except (OSError, ValueError) as error:
            log.error("the certificate stays as it was: %s", error)
        else:
            log.info("read the certificate from %s again", self._files[0])


def server_context(certificate: Path, key: Path | None, client_ca: Path | None = None) -> ssl.SSLContext:
    """A server's context with these files. With `client_ca`, a handshake needs a certificate of the client
    that one of those in it has signed. Raises OSError, or ValueError, which names the flags, when the files
    cannot serve together."""
    context, holder = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), key or certificate
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, _no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            told = f"--tls-key: the key in {holder} is not that of the certificate in {certificate}"
        else:
            told = (
                f"--tls-cert: no HTTPS with the certificate in {certificate} and the key in {holder}: "
                "both must be PEM"
            )
        raise ValueError(told) from error
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as error:
            raise ValueError(
                f"--tls-client-ca: {client_ca} has no certificate in PEM that can be read"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _no_password() -> str:
    raise ValueError("the key of --tls-key is encrypted: give one without a password")
