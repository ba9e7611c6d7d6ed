"""The certificate of a server that speaks HTTPS."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

log = logging.getLogger(__name__)


class Certificate:
    """The certificate that handshakes use, which may be renewed while the server runs.

    Raises OSError or ValueError when the files cannot serve.
    """

    def __init__(self, certificate: Path, key: Path | None) -> None:
        self._files = certificate, key
        self.context = server_context(certificate, key)

    def read_again(self) -> None:
        """New handshakes use what the files hold now. Files that cannot serve change nothing."""
        try:
            self.context = server_context(*self._files)
        except (OSError, ValueError) as error:
            log.error("the certificate stays as it was: %s", error)
        else:
            log.info("read the certificate from %s again", self._files[0])


def server_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """A server's context with these files. Raises OSError, or ValueError with what to do, when they cannot
    serve."""
    for path in filter(None, (certificate, key)):
        with open(path, "rb"):
            pass
    context, holder = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), key or certificate
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, _no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            told = f"the key in {holder} is not that of the certificate in {certificate}"
        else:
            told = f"no HTTPS with the certificate in {certificate} and the key in {holder}: both must be PEM"
        raise ValueError(told) from error
    return context


def _no_password() -> str:
    raise ValueError("the key of --tls-key is encrypted: give one without a password")
