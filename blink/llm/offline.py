"""LLM: many prompts at once, and all their answers at the end."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from blink.llm import questions
from blink.llm.answer import Answer
from blink.llm.engine import CLOSED
from blink.llm.errors import BackendError, GenerationError, PromptError, told
from blink.llm.model import Model
from blink.llm.outputs import RequestOutput
from blink.llm.progress import Bar, progress
from blink.llm.questions import Message, Prompt, Question
from blink.llm.sampling import SamplingParams
from nic_frontend.errors import ApiError

CANCEL_S = 10.0  # for what was interrupted to end


@dataclass(frozen=True)
class _Ended:
    index: int
    result: Answer | PromptError | BackendError


class LLM(Model):
    """Answers many prompts at a time. Threads may share it; what they ask is answered together."""

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool | Bar = True,
        lora_request: None = None,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Continues each prompt: a string, a list of token ids, or a dictionary with `prompt` or
        `prompt_token_ids`, and `cache_salt`. The outputs are in the prompts' order.

        `sampling_params` and `priority`, which needs scheduling_policy="priority", are for all prompts or one
        for each. Raises GenerationError when all prompts but those that could not be answered are answered;
        RuntimeError when nothing can be served.
        """
        _refuse_lora(lora_request)
        asked = questions.listed_prompts(prompts)
        return self._answers(
            self._questions(asked, sampling_params, priority, chat=False), len(asked), use_tqdm
        )

    def chat(
        self,
        messages: list[Message] | Sequence[list[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | Bar = True,
        lora_request: None = None,
        chat_template: None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[dict[str, Any]] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Answers each conversation, which the model's chat template turns into a prompt. The text is what
        the model says: calls of tools and thoughts are not taken out of it.

        Raises as `generate` does.
        """
        _refuse_lora(lora_request)
        if chat_template is not None:
            raise ValueError("a template is for all conversations: LLM(model, chat_template=FILE)")
        asked = questions.listed_conversations(messages)
        wanted = {
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
            "tools": tools,
            "chat_template_kwargs": chat_template_kwargs,
        }
        found = self._questions(asked, sampling_params, priority, chat=True, **wanted)
        return self._answers(found, len(asked), use_tqdm)

    def _questions(
        self, asked: list[Any], params: Any, priority: Any, *, chat: bool, **wanted: Any
    ) -> Iterator[Question]:
        """Made when their turn comes. Raises ValueError where there are too few or too many of something, and
        TypeError for what are no parameters.
        """
        if params is None:
            params = self.get_default_sampling_params()
        listed = questions.each(params, len(asked), "sampling_params")
        for one in listed:
            questions.check_params(one)
        each = zip(
            asked,
            listed,
            questions.each(priority, len(asked), "priority"),
            strict=True,
        )
        return (Question(one, params, {**wanted, "priority": urgency}, chat) for one, params, urgency in each)

    def _answers(self, asked: Iterator[Question], total: int, use_tqdm: bool | Bar) -> list[RequestOutput]:
        service = self._engine.check()
        ended: queue.SimpleQueue[_Ended | None] = queue.SimpleQueue()
        workers = min(total, service.lease.n_slots)
        cleaned = threading.Event()
        numbered = ((index, *self._number(question)) for index, question in enumerate(asked))
        work = self._engine.start(self._ask_all(numbered, workers, ended, cleaned))
        work.add_done_callback(lambda _: ended.put(None))
        outputs: list[RequestOutput | None] = [None] * total
        errors: dict[int, PromptError | BackendError] = {}
        try:
            with progress(total, use_tqdm) as advance:
                while (one := ended.get()) is not None:
                    if isinstance(one.result, Answer):
                        output = outputs[one.index] = one.result.take()  # here: it may take a while
                        advance(output)
                    else:
                        errors[one.index] = one.result
                        advance(None)
            work.result()
        except CancelledError:
            raise RuntimeError(CLOSED) from None
        except BaseException:  # Ctrl-C among them
            work.cancel()
            cleaned.wait(CANCEL_S)
            raise
        if errors:
            raise GenerationError(outputs, errors)
        return [output for output in outputs if output is not None]

    async def _ask_all(
        self,
        asked: Iterator[tuple[int, int, Question]],
        workers: int,
        ended: queue.SimpleQueue[_Ended | None],
        cleaned: threading.Event,
    ) -> None:
        """Each worker has one question at a time. `cleaned` is set when nothing is open any more."""

        async def work() -> None:
            for index, number, question in asked:
                ended.put(_Ended(index, await self._ask(index, number, question)))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(work())
                    await asyncio.sleep(0)  # so that the first are submitted before the last are tokenized
        except ExceptionGroup as group:  # faults of ours: one says enough
            raise group.exceptions[0] from None
        finally:
            cleaned.set()

    async def _ask(self, index: int, number: int, question: Question) -> Answer | PromptError | BackendError:
        answer = Answer(str(number), question.params)
        try:
            await self._engine.answer(question, answer)
        except ApiError as error:
            return told(index, error)
        return answer


def _refuse_lora(request: object) -> None:
    if request is not None:
        raise ValueError("'lora_request': LoRA is not supported; leave it out")
