"""A line in the log for each request, when it is over (`--log-requests`)."""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import quote

from nic_frontend.observe.request_record import RequestRecord
from ringbuffer.messages import LOG_FIELDS

log = logging.getLogger(__name__)

PROBES = ("/health", "/metrics", "/ping", "/live")  # asked every few seconds: told only when they fail


def log_request(record: RequestRecord) -> None:
    if record.path in PROBES and record.status == 200:
        return
    fields = record.fields()
    log.info("%s", _words(fields), extra={LOG_FIELDS: fields})


def _words(fields: dict[str, Any]) -> str:
    status = "the client left" if fields["status"] is None else str(fields["status"])
    # A proxy passes on what its client says that its address is: quoted, it cannot look like the rest.
    asked = f"{quote(fields['client'], safe=':.')} {fields['method']} {quote(fields['path'])}"
    parts = [f"{asked} {status} in {fields['seconds']:.3f} s"]
    if "prompt_tokens" in fields:
        cached = f" ({fields['cached_tokens']} cached)" if fields.get("cached_tokens") else ""
        parts.append(f"{fields['prompt_tokens']} tokens in{cached}, {fields['output_tokens']} out")
    if "ttft_ms" in fields:
        parts.append(f"TTFT {fields['ttft_ms']:.1f} ms")
    if "tpot_ms" in fields:
        parts.append(f"TPOT {fields['tpot_ms']:.2f} ms")
    if "key" in fields:
        parts.append(f"key {fields['key']}")
    return ", ".join([*parts, f"id {fields['id']}"])
