"""Blink. What a program uses is imported when it is first asked for: `import blink` itself stays cheap."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blink.llm import LLM as LLM
    from blink.llm import AsyncLLM as AsyncLLM
    from blink.llm import BackendError as BackendError
    from blink.llm import CompletionOutput as CompletionOutput
    from blink.llm import GenerationError as GenerationError
    from blink.llm import Logprob as Logprob
    from blink.llm import PromptError as PromptError
    from blink.llm import RequestOutput as RequestOutput
    from blink.llm import RequestOutputKind as RequestOutputKind
    from blink.llm import SamplingParams as SamplingParams
    from blink.llm import StructuredOutputsParams as StructuredOutputsParams
    from blink.llm import TextPrompt as TextPrompt
    from blink.llm import TokensPrompt as TokensPrompt

LLM_MODULE = "blink.llm"


def __getattr__(name: str) -> Any:
    if name[:1].isupper() and name in (module := importlib.import_module(LLM_MODULE)).__all__:
        return getattr(module, name)
    raise AttributeError(f"module 'blink' has no attribute {name!r}")
