"""What the prefix cache does for those who ask: nothing is computed twice, and answers are what they are
without it. Each check is a test of the GPU's scheduler and engine, and of the emulation's.
"""

from __future__ import annotations

import random

from limits import WAIT_S
from serving import Demo, items, serving
from waiting import idle_stats

from ringbuffer.client import Stream

PAGE = 16
LONG_PROMPTS = ("lookup_long", "memory")


def computed(demo: Demo) -> int:
    """Prompt tokens that steps have run on so far, once all that was asked is answered."""
    return idle_stats(demo.client.region)["prompt_tokens"]


def ask(demo: Demo, prompts: list[list[int]], max_tokens: int = 24, **params: object) -> list[Stream]:
    """All at once."""
    prepared = [demo.client.prepare(prompt, max_tokens, **params) for prompt in prompts]
    for stream in prepared:
        demo.client.start(stream)
    demo.client.wait(prepared, WAIT_S)
    return prepared


def answers_are_those_of_a_server_without_it(device: str) -> None:
    chosen = items(LONG_PROMPTS, 16)
    with serving(f"no-prefix-{device}", "--no-prefix-cache", device=device) as (_, region):
        demo = Demo(region)
        plain = demo.answer(chosen)
        assert region.stats()["prefix_hits"] == 0
        demo.client.close()
    with serving(f"prefix-{device}", device=device) as (_, region):
        demo = Demo(region)
        first = demo.answer(chosen)
        before = computed(demo)
        second = demo.answer(chosen)
        assert computed(demo) - before <= PAGE * len(chosen)
        assert [s.tokens for s in first] == [s.tokens for s in plain]
        assert [s.tokens for s in second] == [s.tokens for s in plain]
        assert all(s.cached > 0 for s in second)
        assert region.stats()["cached_pages"] > 0
        demo.client.close()


def a_conversation_finds_what_was_said(device: str) -> None:
    rng = random.Random(3)
    with serving(f"conversation-{device}", device=device) as (_, region):
        demo = Demo(region)
        history, known = [rng.randrange(10, 500) for _ in range(200)], 0
        for _ in range(5):
            (stream,) = ask(demo, [history], 40, flags=1)
            assert len(stream.tokens) == 40
            fed = len(history) + 39  # the last token of an answer is never fed
            assert stream.cached == known
            history += stream.tokens + [rng.randrange(10, 500) for _ in range(30)]
            known = fed // PAGE * PAGE
        demo.client.close()


def a_burst_with_one_beginning_computes_it_once(device: str) -> None:
    rng = random.Random(4)
    beginning = [rng.randrange(10, 500) for _ in range(1000)]
    prompts = [[*beginning, *(rng.randrange(10, 500) for _ in range(20))] for _ in range(16)]
    with serving(f"burst-{device}", device=device) as (_, region):
        demo = Demo(region)
        before = computed(demo)
        together = ask(demo, prompts)
        assert computed(demo) - before <= 1020 + 15 * (20 + PAGE)
        alone = [ask(demo, [prompt], salt=(1 + i, 2))[0] for i, prompt in enumerate(prompts)]
        assert all(s.cached == 0 for s in alone), "another tenant's keys and values were used"
        assert [s.tokens for s in together] == [s.tokens for s in alone]
        demo.client.close()


def pages_make_room_under_pressure(device: str) -> None:
    rng = random.Random(5)
    begins = [[rng.randrange(10, 500) for _ in range(160)] for _ in range(40)]
    with serving(f"evict-{device}", "--kv-memory", "8MiB", device=device) as (_, region):
        demo = Demo(region)
        expected: dict[int, list[int]] = {}
        for _ in range(6):
            chosen = [rng.randrange(len(begins)) for _ in range(16)]
            for i, stream in zip(chosen, ask(demo, [begins[i] for i in chosen]), strict=True):
                assert expected.setdefault(i, stream.tokens) == stream.tokens
        stats = region.stats()
        assert stats["prefix_evictions"] > 0
        assert stats["prefix_hits"] > 0
        demo.client.close()


def host_memory_has_what_the_device_forgot(device: str) -> None:
    """Prompts of more than the device holds, one after the other and then again: without host memory, the
    second round finds as good as nothing (S19)."""
    chosen = items(("lookup_long",), 16)
    flags = ("--kv-memory", "8MiB", "--max-prefill-tokens", "128", "--mixed-share", "16")
    again, answers = {}, {}
    for name, more in {"tiered": ("--host-kv-memory", "256MiB"), "forgetful": ()}.items():
        with serving(f"{name}-{device}", *flags, *more, device=device) as (_, region):
            demo = Demo(region)
            first = [demo.answer([item])[0] for item in chosen]
            before = computed(demo)
            second = [demo.answer([item])[0] for item in chosen]
            again[name] = (computed(demo) - before) / before
            answers[name] = [s.tokens for s in (*first, *second)]
            demo.client.close()
    assert again["tiered"] < 0.4 < 0.9 < again["forgetful"], again
    assert answers["tiered"] == answers["forgetful"]
