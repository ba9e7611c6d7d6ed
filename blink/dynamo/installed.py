"""What `blink dynamo` says where Dynamo is not installed, or only a part of it: it comes in two packages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from blink.errors import CommandError
from ringbuffer.version import install

# One of ai-dynamo's dependencies is on no index, and a worker needs none that the extra does not bring.
INSTALL = f"{install('dynamo')}, and then pip install --no-deps 'ai-dynamo>=1.6.1,<1.7'"


@contextmanager
def needing_dynamo() -> Iterator[None]:
    """For imports of Dynamo's modules. Raises CommandError, with what to install, where they cannot be."""
    try:
        yield
    except ImportError as error:
        raise CommandError(f"NVIDIA Dynamo cannot be imported ({error}): {INSTALL}") from error
