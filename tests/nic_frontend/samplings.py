"""The sampling of requests that ask for nothing in particular."""

from __future__ import annotations

from typing import Any

from nic_frontend.api.schema.generation import Generation
from nic_frontend.api.schema.rows import descriptor_values
from nic_frontend.ring.request import Sampling


def plain_sampling(**fields: Any) -> Sampling:
    """`fields`: of the Sampling, but for `values`."""
    return Sampling(**{"max_tokens": 9, "seed": 1, "values": descriptor_values(Generation()), **fields})
