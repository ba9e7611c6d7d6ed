"""What a kernel family offers to the choice (gpu_backend.ops.choice)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch, Work
from gpu_backend.ops.matrix import Buffer


class Candidate(Protocol):
    """A kernel family that may serve operations of one kind.

    `suits` says in one clause why it does not serve this one here, or returns None. `launches` is asked only
    of an operation that suits: the launches that serve it, in order.
    """

    name: str

    def suits(self, op: Any, target: Target) -> str | None: ...

    def launches(self, op: Any, target: Target) -> Sequence[Work]: ...


@dataclass(frozen=True)
class Choice:
    """`op` is served by the launches of the family `name`. `refused`: each family that would have come first,
    and why it does not serve."""

    op: Any
    name: str
    launches: tuple[Work, ...]
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def kernels(self) -> set[str]:
        """The instances that have to be compiled."""
        return {launch.kernel for launch in self.launches if isinstance(launch, Launch)}

    @property
    def buffers(self) -> list[Buffer]:
        """What has to be allocated."""
        return [buffer for launch in self.launches for buffer in launch.buffers]


class NoKernel(ValueError):
    """No family serves an operation; says why not for each."""
