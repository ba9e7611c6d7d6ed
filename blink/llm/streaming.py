"""AsyncLLM: one prompt at a time, whose answer comes as it is made."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, Iterable
from concurrent.futures import CancelledError, Future
from functools import cached_property
from types import TracebackType
from typing import Any, NamedTuple

from blink.llm.answer import Answer
from blink.llm.engine import CLOSED
from blink.llm.errors import told
from blink.llm.model import Model
from blink.llm.outputs import RequestOutput
from blink.llm.questions import Message, Prompt, Question, check_params
from blink.llm.sampling import RequestOutputKind, SamplingParams
from nic_frontend.errors import ApiError


class _Open(NamedTuple):
    answer: Answer
    work: Future[None]


class AsyncLLM(Model):
    """For event loops, also several. Its options are those of LLM.

    The constructor returns when the model is served, which may take minutes: in a program whose event loop
    does other things already, `await asyncio.to_thread(AsyncLLM, model)`.
    """

    @cached_property
    def _open(self) -> dict[str, _Open]:
        """By their ids."""
        return {}

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def shutdown(self) -> None:
        """As `close`, which vLLM's AsyncLLM calls so."""
        self.close()

    def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        priority: int | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Continues the prompt. Each output has all of the answer so far, or what `output_kind` says; the
        last one is `finished`. Outputs that nobody waits for are combined. A caller that is cancelled, or
        that leaves the loop, ends the request. Without a `request_id`, it gets one that no caller gives.

        Raises PromptError where it cannot be served, BackendError where that failed, ValueError where
        `request_id` is open already, and RuntimeError when nothing can be served.
        """
        return self._stream(Question(prompt, *self._params(sampling_params, priority)), request_id)

    def chat(
        self,
        messages: list[Message],
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[dict[str, Any]] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
        priority: int | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Answers a conversation, as LLM.chat does, and streams as `generate` does."""
        params, wanted = self._params(sampling_params, priority)
        wanted |= {
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
            "tools": tools,
            "chat_template_kwargs": chat_template_kwargs,
        }
        return self._stream(Question(messages, params, wanted, chat=True), request_id)

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """Ends requests: their streams end with the finish reason "abort". Harmless for others."""
        for name in [request_id] if isinstance(request_id, str) else list(request_id):
            if (found := self._open.get(name)) is not None:
                found.work.cancel()
                found.answer.abort()

    def _params(
        self, given: SamplingParams | None, priority: int | None
    ) -> tuple[SamplingParams, dict[str, Any]]:
        params = self.get_default_sampling_params() if given is None else given
        check_params(params)
        return params, {"priority": priority}

    async def _stream(
        self, question: Question, request_id: str | None
    ) -> AsyncGenerator[RequestOutput, None]:
        loop, engine = asyncio.get_running_loop(), self._engine
        engine.check()
        _, question = self._number(question)
        name = request_id if request_id is not None else f"auto-{uuid.uuid4().hex}"
        if name in self._open:
            raise ValueError(
                f"the request_id {name!r} is that of an open request: give another, or leave it out"
            )
        news = asyncio.Event()
        only_last = question.params.output_kind is RequestOutputKind.FINAL_ONLY

        def wake(_: object = None) -> None:
            with contextlib.suppress(RuntimeError):  # the caller's loop has been closed
                loop.call_soon_threadsafe(news.set)

        def tell() -> None:
            if answer.finished or not only_last:
                wake()

        answer = Answer(name, question.params, tell)
        work = engine.start(engine.answer(question, answer))
        work.add_done_callback(wake)
        self._open[name] = _Open(answer, work)
        try:
            while True:
                await news.wait()
                news.clear()
                if answer.finished or (answer.has_news and not only_last):
                    output = answer.take()
                    yield output
                    if output.finished:
                        return
                elif work.done():
                    work.result()  # which raises: there is no answer
        except ApiError as error:
            raise told(None, error) from None
        except CancelledError:  # not asyncio's: of the work
            raise RuntimeError(CLOSED) from None
        finally:
            work.cancel()
            del self._open[name]
