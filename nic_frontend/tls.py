"""The certificate of a server that speaks HTTPS."""

from __future__ import annotations

import ssl
from pathlib import Path


def check_certificate(certificate: Path, key: Path | None) -> None:
    """Raises OSError, or ValueError with what to do, when the files cannot serve."""
    for path in filter(None, (certificate, key)):
        with open(path, "rb"):
            pass
    context, holder = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), key or certificate
    try:
        context.load_cert_chain(certificate, key, _no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            told = f"the key in {holder} is not that of the certificate in {certificate}"
        else:
            told = f"no HTTPS with the certificate in {certificate} and the key in {holder}: both must be PEM"
        raise ValueError(told) from error


def _no_password() -> str:
    raise ValueError("the key of --tls-key is encrypted: give one without a password")
