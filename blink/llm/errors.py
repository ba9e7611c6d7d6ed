"""What is raised where prompts cannot be answered."""

from __future__ import annotations

from collections.abc import Mapping

from blink.llm.outputs import RequestOutput
from nic_frontend.errors import ApiError


def _placed(index: int | None, message: str) -> str:
    return message if index is None else f"prompt {index}: {message}"


class PromptError(ValueError):
    """A prompt, or what was asked of its answer, cannot be served. `index` is its place among the prompts;
    None where it was the only one.
    """

    def __init__(self, index: int | None, message: str) -> None:
        super().__init__(_placed(index, message))
        self.index = index


class BackendError(RuntimeError):
    """The backend could not answer the prompt, which may have been right."""

    def __init__(self, index: int | None, message: str) -> None:
        super().__init__(_placed(index, message))
        self.index = index


class GenerationError(RuntimeError):
    """Some prompts were not answered; all others were. `outputs` has None in their places, and `errors` says
    why, by their indices.
    """

    def __init__(
        self, outputs: list[RequestOutput | None], errors: Mapping[int, PromptError | BackendError]
    ) -> None:
        first = errors[min(errors)]
        others = ""
        if len(errors) > 1:
            others = f" ({len(errors)} of {len(outputs)} prompts failed; see .errors and .outputs)"
        super().__init__(f"{first}{others}")
        self.outputs = outputs
        self.errors = dict(errors)


def told(index: int | None, error: ApiError) -> PromptError | BackendError:
    """A frontend's error as a caller of Python gets it."""
    kind = PromptError if error.status == 400 else BackendError
    return kind(index, str(error))
