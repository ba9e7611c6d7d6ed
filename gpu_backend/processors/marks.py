"""What the author of a logits processor says of it, so that it costs less."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gpu_backend.processors.called import python_function

MARK = "blink_changes_only_recent"
Function = TypeVar("Function", bound=Callable[..., object])


def changes_only_recent(function: Function) -> Function:
    """Decorates a logits processor that returns a logit as it was for each token that is not among `recent`.

    It is then called for the tokens among `recent` alone. A start refuses one that changes another token's.
    """
    setattr(python_function(function), MARK, True)
    return function


def is_marked(function: Callable[..., object]) -> bool:
    return bool(getattr(function, MARK, False))
