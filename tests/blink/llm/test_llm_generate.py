"""LLM.generate and LLM.chat on a mock backend, whose answers are known."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures import *  # noqa: F403
from forked import forked
from harness import StartBackend
from limits import WAIT_S
from mock_backend import MockBackend
from scripted_answers import say
from waiting import wait_until

from blink import LLM, BackendError, GenerationError, PromptError, RequestOutput, SamplingParams
from blink.llm.model import INSTEAD

PROMPT = [10, 11, 12]
MakeLLM = Callable[..., LLM]


@pytest.fixture
def make_llm(model_dir: Path) -> Iterator[MakeLLM]:
    """A function that attaches to a backend; all are closed at the end."""
    made: list[LLM] = []

    def make(backend: MockBackend, **options: Any) -> LLM:
        made.append(LLM(model_dir, ring=backend.path, attach_timeout=WAIT_S, **options))
        return made[-1]

    yield make
    for llm in made:
        llm.close()


def tokens_of(output: RequestOutput) -> list[list[int]]:
    return [choice.token_ids for choice in output.outputs]


def test_every_form_of_a_prompt(start_backend: StartBackend, make_llm: MakeLLM) -> None:
    llm = make_llm(start_backend())
    params = SamplingParams(max_tokens=3)
    salted = {"prompt_token_ids": PROMPT, "cache_salt": "mine"}
    prompts = [
        "hello",
        PROMPT,
        {"prompt": "hello"},
        salted,
        {"prompt_token_ids": PROMPT, "prompt": "as text"},
    ]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    hello = outputs[0].prompt_token_ids
    assert [output.prompt_token_ids for output in outputs] == [hello, PROMPT, hello, PROMPT, PROMPT]
    assert [output.prompt for output in outputs] == ["hello", None, "hello", None, "as text"]
    assert [tokens_of(output) for output in outputs] == [[[4, 5, 6]]] * 5
    assert all(output.finished for output in outputs)
    assert {output.outputs[0].finish_reason for output in outputs} == {"length"}
    assert len(llm.generate("hello", params, use_tqdm=False)) == 1
    assert len(llm.generate(PROMPT, params, use_tqdm=False)) == 1
    assert llm.generate([], params, use_tqdm=False) == []


def test_parameters_may_be_one_for_each(start_backend: StartBackend, make_llm: MakeLLM) -> None:
    backend = start_backend()
    llm = make_llm(backend)
    each = [SamplingParams(max_tokens=2, n=2, seed=7), SamplingParams(max_tokens=None, stop_token_ids=[5])]
    two, stopped = llm.generate([PROMPT, PROMPT], each, use_tqdm=False)
    assert tokens_of(two) == [[4, 5], [4, 5]]
    assert [choice.index for choice in two.outputs] == [0, 1]
    seeds = sorted(
        int(row.descriptor["seed"]) for row in backend.accepted if row.descriptor["max_tokens"] == 2
    )
    assert seeds == [7, 8]
    assert tokens_of(stopped) == [[4, 5]]
    assert (stopped.outputs[0].finish_reason, stopped.outputs[0].stop_reason) == ("stop", 5)
    (long,) = llm.generate(PROMPT, SamplingParams(max_tokens=None, min_tokens=20), use_tqdm=False)
    assert len(tokens_of(long)[0]) == 512 - len(PROMPT)
    with pytest.raises(ValueError, match="sampling_params has 2 entries for 1 prompts"):
        llm.generate(["x"], each)
    with pytest.raises(TypeError, match=r"are blink\.SamplingParams, not builtins\.dict"):
        llm.generate("x", {"n": 2})  # type: ignore[arg-type]


def test_a_seed_for_all_makes_each_repeatable(start_backend: StartBackend, make_llm: MakeLLM) -> None:
    seeds = []
    for seed in (5, 5, 6, None, None):
        backend = start_backend()
        llm = make_llm(backend, seed=seed)
        for _ in range(2):
            llm.generate([[20], [21], [22]], SamplingParams(max_tokens=1), use_tqdm=False)
        llm.generate(PROMPT, SamplingParams(max_tokens=1, seed=9), use_tqdm=False)
        rows = sorted((int(row.prompt[0]), int(row.descriptor["seed"])) for row in backend.accepted)
        assert (10, 9) in rows
        seeds.append(rows)
        assert len({number for _, number in rows}) == 7
    assert seeds[0] == seeds[1]
    assert len({tuple(rows) for rows in seeds}) == 4


def test_text_ends_before_a_stop_string(
    start_backend: StartBackend, make_llm: MakeLLM, model_dir: Path
) -> None:
    backend = start_backend()
    llm = make_llm(backend)
    (plain,) = llm.generate("x", SamplingParams(max_tokens=40), use_tqdm=False)
    stop = plain.outputs[0].text[20:22]
    for include in (False, True):
        params = SamplingParams(max_tokens=40, stop=stop, include_stop_str_in_output=include)
        (output,) = llm.generate("x", params, use_tqdm=False)
        (choice,) = output.outputs
        assert choice.text == plain.outputs[0].text[: 22 if include else 20]
        assert (choice.finish_reason, choice.stop_reason) == ("stop", stop)
    silent = SamplingParams(max_tokens=3, detokenize=False)
    assert llm.generate("x", silent, use_tqdm=False)[0].outputs[0].text == ""


@pytest.mark.parametrize("logprobs", [None, 0])
def test_several_long_answers_are_whole(
    start_backend: StartBackend, make_llm: MakeLLM, logprobs: int | None
) -> None:
    params = SamplingParams(max_tokens=300, n=3, logprobs=logprobs)
    (output,) = make_llm(start_backend()).generate(PROMPT, params, use_tqdm=False)
    texts = {choice.text for choice in output.outputs}
    assert tokens_of(output) == [[4 + i % 256 for i in range(300)]] * 3
    assert len(texts) == 1
    assert all(texts)
    if logprobs is not None:
        assert [len(choice.logprobs or ()) for choice in output.outputs] == [300] * 3


def test_a_stop_string_ends_what_is_computed(start_backend: StartBackend, make_llm: MakeLLM) -> None:
    backend = start_backend(step_s=0.04)  # so that all tokens would take 20 s
    llm = make_llm(backend)
    (plain,) = llm.generate(PROMPT, SamplingParams(max_tokens=10), use_tqdm=False)
    llm.generate(PROMPT, SamplingParams(max_tokens=500, stop=plain.outputs[0].text[3:6]), use_tqdm=False)
    wait_until(lambda: backend.open_rows() == 0)
    assert backend.accepted[-1].steps < 500 / 2


def test_log_probabilities(start_backend: StartBackend, make_llm: MakeLLM) -> None:
    params = SamplingParams(max_tokens=2, logprobs=2, prompt_logprobs=1)
    llm = make_llm(start_backend())
    (output,) = llm.generate(PROMPT, params, use_tqdm=False)
    (choice,) = output.outputs
    assert choice.logprobs is not None
    assert [set(entry) for entry in choice.logprobs] == [{4, 5}, {5, 6}]
    assert [entry[token].logprob for entry, token in zip(choice.logprobs, (4, 5), strict=True)] == [
        -0.25,
        -0.5,
    ]
    assert choice.logprobs[0][4].rank == 1
    assert choice.logprobs[0][4].decoded_token is not None
    assert choice.cumulative_logprob == -0.75
    assert output.prompt_logprobs is not None
    assert output.prompt_logprobs[0] is None
    assert [11 in entry for entry in output.prompt_logprobs[1:] if entry] == [True, False]
    (plain,) = llm.generate(PROMPT, SamplingParams(max_tokens=2), use_tqdm=False)
    assert (plain.prompt_logprobs, plain.outputs[0].logprobs) == (None, None)
    assert plain.outputs[0].cumulative_logprob is None


def test_a_wrong_prompt_costs_no_other_its_answer(start_backend: StartBackend, make_llm: MakeLLM) -> None:
    wrong: list[Any] = [[99999], "", {"prompt": "x", "multi_modal_data": 1}, 5, [1] * 600, [1, "x"], None]
    prompts = [PROMPT, *wrong, PROMPT]
    with pytest.raises(GenerationError, match=r"prompt 1: .* 99999; .*\(7 of 9 prompts failed") as raised:
        make_llm(start_backend()).generate(prompts, SamplingParams(max_tokens=2), use_tqdm=False)
    outputs, errors = raised.value.outputs, raised.value.errors
    assert [output is not None for output in outputs] == [True, *[False] * 7, True]
    assert sorted(errors) == [1, 2, 3, 4, 5, 6, 7]
    assert all(isinstance(error, PromptError) and error.index == i for i, error in errors.items())
    assert "'multi_modal_data'" in str(errors[3])
    assert str(errors[4]).endswith("this is of type int")
    assert "maximum context length is 512" in str(errors[5])
    assert str(errors[6]).endswith("this is a list with str")


def test_an_answer_ends_where_no_more_fits_as_in_vllm(start_backend: StartBackend, make_llm: MakeLLM) -> None:
    llm = make_llm(start_backend())
    params = SamplingParams(max_tokens=5000, min_tokens=400, n=2)
    talk = [{"role": "user", "content": "hi"}]
    for output in (
        *llm.generate(PROMPT, params, use_tqdm=False),
        *llm.chat(talk, params, use_tqdm=False),
    ):
        room = 512 - len(output.prompt_token_ids)
        assert [len(tokens) for tokens in tokens_of(output)] == [room, room]
        assert [choice.finish_reason for choice in output.outputs] == ["length", "length"]
    cut = SamplingParams(max_tokens=5000, min_tokens=1, truncate_prompt_tokens=-1)
    (output,) = llm.generate([[7] * 600], cut, use_tqdm=False)
    assert len(output.prompt_token_ids) == 511
    with pytest.raises(
        GenerationError, match=r"more than the 509 tokens .* 'max_tokens' is 5000, and no more"
    ):
        llm.generate(PROMPT, SamplingParams(max_tokens=5000, min_tokens=600), use_tqdm=False)


@pytest.mark.parametrize("wide", [{"n": 8}, {"logprobs": 20}])
def test_nor_is_it_an_error_where_the_ring_has_less_room(
    start_backend: StartBackend, make_llm: MakeLLM, wide: dict[str, Any]
) -> None:
    """As many as there are with max_tokens=None."""
    llm = make_llm(start_backend(output_heap=2048))
    found = [
        [len(tokens) for tokens in tokens_of(llm.generate(PROMPT, params, use_tqdm=False)[0])]
        for params in (SamplingParams(max_tokens=None, **wide), SamplingParams(max_tokens=5000, **wide))
    ]
    assert found[0] == found[1]
    assert 16 <= found[0][0] < 400


def test_conversations(start_backend: StartBackend, make_llm: MakeLLM) -> None:
    llm = make_llm(start_backend())
    talk = [{"role": "user", "content": "hi"}]
    one = llm.chat(talk, SamplingParams(max_tokens=2), use_tqdm=False)
    assert [output.prompt for output in one] == ["<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"]
    wrong = [{"role": "nobody", "content": "hi"}]
    with pytest.raises(GenerationError, match=r"prompt 1: 'messages\[0\]") as raised:
        llm.chat([talk, wrong, talk], SamplingParams(max_tokens=2, logprobs=1), use_tqdm=False)
    first, _, last = raised.value.outputs
    assert first is not None
    assert last is not None
    assert first.outputs[0].logprobs is not None
    assert first.outputs == last.outputs
    (bare,) = llm.chat(talk, SamplingParams(max_tokens=2), use_tqdm=False, add_generation_prompt=False)
    assert bare.prompt == "<|im_start|>user\nhi<|im_end|>\n"
    with pytest.raises(ValueError, match=r"LLM\(model, chat_template=FILE\)"):
        llm.chat(talk, chat_template="{{ messages }}")  # type: ignore[arg-type]


def test_outputs_are_in_the_order_of_prompts(start_backend: StartBackend, make_llm: MakeLLM) -> None:
    """With more of them than slots, and answers that end out of order."""
    backend = start_backend(n_slots=16)
    prompts = [[20 + i % 500] for i in range(100)]
    params = [SamplingParams(max_tokens=1 + (i * 37) % 50) for i in range(100)]
    advanced: list[int] = []

    class Bar:
        postfix = ""
        format_dict = {"elapsed": 1.0}  # noqa: RUF012

        def __init__(self, **options: Any) -> None:
            assert options["total"] == 100

        def update(self, n: int) -> None:
            advanced.append(n)

        def close(self) -> None:
            advanced.append(0)

    outputs = make_llm(backend).generate(prompts, params, use_tqdm=Bar)
    assert [output.prompt_token_ids for output in outputs] == prompts
    assert [len(output.outputs[0].token_ids) for output in outputs] == [one.max_tokens for one in params]
    assert advanced == [1] * 100 + [0]


def test_threads_share_a_model(start_backend: StartBackend, make_llm: MakeLLM) -> None:
    llm = make_llm(start_backend(n_slots=16))
    found: dict[int, int] = {}

    def ask(n: int) -> None:
        outputs = llm.generate([[30 + n]] * 40, SamplingParams(max_tokens=3 + n), use_tqdm=False)
        assert all(output.prompt_token_ids == [30 + n] for output in outputs)
        found[n] = sum(len(output.outputs[0].token_ids) for output in outputs)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert found == {n: 40 * (3 + n) for n in range(4)}


def test_a_running_event_loop_is_left_alone(start_backend: StartBackend, make_llm: MakeLLM) -> None:
    """As in a notebook."""

    async def cell() -> list[RequestOutput]:
        return make_llm(start_backend()).generate("x", SamplingParams(max_tokens=2), use_tqdm=False)

    assert tokens_of(asyncio.run(cell())[0]) == [[4, 5]]


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_cancels_what_is_open(start_backend: StartBackend, make_llm: MakeLLM) -> None:
    backend = start_backend(step_s=0.5)  # so that none ends by itself while it is waited for
    llm = make_llm(backend)

    def interrupt() -> None:
        wait_until(lambda: backend.open_rows() > 2)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        llm.generate([PROMPT] * 200, SamplingParams(max_tokens=400), use_tqdm=False)
    thread.join(WAIT_S)
    wait_until(lambda: backend.open_rows() == 0)
    backend.step_s = 0.001
    assert tokens_of(llm.generate(PROMPT, SamplingParams(max_tokens=1), use_tqdm=False)[0]) == [[4]]


def test_close_ends_what_other_threads_wait_for(start_backend: StartBackend, make_llm: MakeLLM) -> None:
    backend = start_backend(step_s=0.05)
    llm = make_llm(backend)
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            llm.generate([PROMPT] * 3, SamplingParams(max_tokens=400), use_tqdm=False)
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: backend.open_rows() == 3)
    llm.close()
    llm.close()
    thread.join(WAIT_S)
    assert [str(error) for error in raised] == ["this LLM has been closed"]
    with pytest.raises(RuntimeError, match="this LLM has been closed"):
        llm.generate("x")


def test_what_only_vllm_has_is_refused_with_what_takes_its_place(
    start_backend: StartBackend, make_llm: MakeLLM
) -> None:
    llm: Any = make_llm(start_backend())
    for name in INSTEAD:
        with pytest.raises(AttributeError, match=f"LLM has no '{name}': .+"):
            getattr(llm, name)
    assert not hasattr(llm, "nothing_of_the_kind")


def test_a_closed_model_gives_its_lease_back_whoever_has_been_forked(
    start_backend: StartBackend, make_llm: MakeLLM
) -> None:
    backend = start_backend(n_leases=1)
    first = make_llm(backend)
    with forked():
        first.close()
        second = make_llm(backend)
        (output,) = second.generate(PROMPT, SamplingParams(max_tokens=3), use_tqdm=False)
        assert tokens_of(output) == [[4, 5, 6]]


def test_a_model_that_nobody_has_any_more_gives_its_lease_back(
    start_backend: StartBackend, model_dir: Path
) -> None:
    backend = start_backend(n_leases=1)
    for _ in range(2):  # the second would find no lease
        llm = LLM(model_dir, ring=backend.path, attach_timeout=WAIT_S)
        llm.generate("x", SamplingParams(max_tokens=1), use_tqdm=False)
        del llm


def test_a_backend_that_hangs_fails_all_that_wait(start_backend: StartBackend, make_llm: MakeLLM) -> None:
    backend = start_backend(n_slots=16, step_s=0.01)
    llm = make_llm(backend)

    def freeze() -> None:
        wait_until(lambda: backend.open_rows() == 16)
        backend.frozen.set()

    threading.Thread(target=freeze).start()
    began = time.monotonic()
    with pytest.raises(GenerationError, match="heartbeat has stood still") as raised:
        llm.generate([PROMPT] * 60, SamplingParams(max_tokens=400), use_tqdm=False)
    assert time.monotonic() - began < WAIT_S
    assert all(isinstance(error, BackendError) for error in raised.value.errors.values())
    backend.frozen.clear()
    wait_until(lambda: llm._engine.service.tracker.down is None)
    assert tokens_of(llm.generate(PROMPT, SamplingParams(max_tokens=1), use_tqdm=False)[0]) == [[4]]


def test_the_models_own_sampling_is_the_default(
    start_backend: StartBackend, make_llm: MakeLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = start_backend(script=say([5, 6, 7, 8]))
    llm = make_llm(backend)
    monkeypatch.setitem(llm._engine.service.sampling_defaults, "top_k", 7)
    assert llm.get_default_sampling_params() == SamplingParams(top_k=7)
    llm.generate(PROMPT, use_tqdm=False)
    llm.generate(PROMPT, SamplingParams(), use_tqdm=False)
    assert [int(row.descriptor["top_k"]) for row in backend.accepted] == [7, 0]


@pytest.mark.slow
def test_ten_thousand_prompts(start_backend: StartBackend, make_llm: MakeLLM) -> None:
    llm = make_llm(start_backend(n_slots=256))
    params = SamplingParams(max_tokens=4, temperature=0)
    outputs = llm.generate([f"number {i}" for i in range(10_000)], params, use_tqdm=False)
    assert [output.prompt for output in outputs] == [f"number {i}" for i in range(10_000)]
    assert all(tokens_of(output) == [[4, 5, 6, 7]] for output in outputs)
