"""Blink from Python, without HTTP: the names of vLLM's classes and what they mean there (docs/python.md)."""

from blink.llm.errors import BackendError, GenerationError, PromptError
from blink.llm.offline import LLM
from blink.llm.outputs import CompletionOutput, Logprob, RequestOutput
from blink.llm.questions import TextPrompt, TokensPrompt
from blink.llm.sampling import RequestOutputKind, SamplingParams, StructuredOutputsParams
from blink.llm.streaming import AsyncLLM

__all__ = [
    "LLM",
    "AsyncLLM",
    "BackendError",
    "CompletionOutput",
    "GenerationError",
    "Logprob",
    "PromptError",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "StructuredOutputsParams",
    "TextPrompt",
    "TokensPrompt",
]
