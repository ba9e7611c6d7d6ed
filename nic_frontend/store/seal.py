"""Seals what a model thought: clients keep it and send it back, and can neither read, change nor make it.

A sealed text is base64url of a header, a nonce and what AES-256-GCM makes of the text. The header says under
which key, for which model and when it was sealed. It is authenticated together with whose text it is, which
is not written down.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import struct
import time

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MARK = "blink1."  # what every sealed text begins with
HEADER = struct.Struct(">8s8sQ")  # the names of key and model, seconds since 1970
NONCE_BYTES = 12
TAG_BYTES = 16
LONGEST = 1 << 22  # characters of a sealed text


class NotOpened(Exception):
    """Why a sealed text is not taken."""


class Seal:
    """Under one key, for one model; texts that were sealed `age_s` ago or earlier are not taken any more.

    `key` is any secret of at least 16 bytes.
    """

    def __init__(self, key: bytes, model: bytes, age_s: float) -> None:
        self._aead = AESGCM(hashlib.blake2b(key, digest_size=32, person=b"blink seal key").digest())
        self._names = (
            hashlib.blake2b(key, digest_size=8, person=b"blink seal name").digest(),
            hashlib.blake2b(model, digest_size=8, person=b"blink model").digest(),
        )
        self._age_s = age_s

    def sealed(self, owner: bytes, text: str) -> str | None:
        """None where the text is too long."""
        content = text.encode(errors="surrogatepass")
        if len(content) > LONGEST // 2:  # base64 adds a third
            return None
        header, nonce = HEADER.pack(*self._names, int(time.time())), secrets.token_bytes(NONCE_BYTES)
        hidden = self._aead.encrypt(nonce, content, header + owner)
        return MARK + base64.urlsafe_b64encode(header + nonce + hidden).decode()

    def opened(self, owner: bytes, sealed: str) -> str:
        """The text. Raises NotOpened."""
        if len(sealed) > LONGEST:
            raise NotOpened(f"has {len(sealed)} characters; this server makes none of more than {LONGEST}")
        try:
            content = base64.b64decode(sealed.removeprefix(MARK), altchars=b"-_", validate=True)
        except ValueError:
            content = b""
        if not sealed.startswith(MARK) or len(content) < HEADER.size + NONCE_BYTES + TAG_BYTES:
            raise NotOpened("was not made by this server, or is cut off")
        header, rest = content[: HEADER.size], content[HEADER.size :]
        key, model, when = HEADER.unpack(header)
        if key != self._names[0]:
            raise NotOpened(
                "was sealed under another key: by another server, or by this one before it was started anew "
                "(--seal-key-file keeps the key)"
            )
        if model != self._names[1]:
            raise NotOpened("was sealed for another model")
        try:
            text = self._aead.decrypt(rest[:NONCE_BYTES], rest[NONCE_BYTES:], header + owner)
        except InvalidTag:
            raise NotOpened("was changed, or made for another API key") from None
        if time.time() - when >= self._age_s:
            raise NotOpened(f"is older than {self._age_s / 86400:g} days, which is as long as it is taken")
        return text.decode(errors="surrogatepass")
