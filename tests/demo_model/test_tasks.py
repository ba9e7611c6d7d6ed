"""The demo model's tasks, corpus and tokenizer (invariants of scripts/demo_model/README.md)."""

import itertools
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from demo_model import corpus, evaluate, tasks, tokenizer, words
from hypothesis import given, settings
from hypothesis import strategies as st
from limits import PROGRAM_S
from tokenizers import Tokenizer

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "models" / "demo" / "tokenizer.json"


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return tokenizer.train_tokenizer(corpus.sample_texts(3000, 0), 1024)


def items(task: str, count: int, seed: int = 0) -> list[tasks.Item]:
    rng = random.Random(seed)
    return [tasks.sample(task, rng) for _ in range(count)]


@pytest.mark.parametrize("task", tasks.TASKS)
def test_the_checker_accepts_right_and_rejects_wrong_answers(task: str) -> None:
    """Invariant 2."""
    for item in items(task, 50):
        assert tasks.check(item, item.answer)
        assert tasks.check(item, f" {item.answer}\n")
        for wrong in ("", item.answer[:-1], item.answer + "1", item.answer + " " + item.answer):
            assert not tasks.check(item, wrong), (item, wrong)


def test_answers_are_computed_right() -> None:
    """The reference answers against a second computation, from the numbers in the prompt."""
    for item in items("add", 200):
        a, b = map(int, item.key.split())
        assert str(a) in item.prompt
        assert str(b) in item.prompt
        assert int(item.answer) == a + b
    for item in items("subtract", 200):
        a, b = map(int, item.key.split())
        assert int(item.answer) == a - b >= 0
    for item in items("count", 200) + items("count_long", 20):
        first, last, step = map(int, item.key.split())
        numbers = [int(x) for x in item.answer.split(", ")]
        assert (numbers[0], numbers[-1]) == (first, last)
        assert all(y - x == step for x, y in itertools.pairwise(numbers))
    for item in items("lookup_long", 20):
        text, name, which = item.key.rsplit("|", 2)
        fact = text.split(f" {name} lives in ")[1].split(".")[0]
        assert item.answer == fact.split(" and likes ")[int(which)]


def test_a_story_keeps_its_hero() -> None:
    item = next(item for item in items("story", 50) if item.hero)
    other = next(name for name in words.NAMES if name != item.hero["name"])
    assert not tasks.check(item, item.answer.replace(item.hero["name"], other))
    assert not tasks.check(item, item.answer.replace(item.hero["name"], other, 1))


@pytest.mark.parametrize("task", tasks.TASKS)
def test_prompts_end_without_white_space_and_the_user_speaks_last(task: str) -> None:
    """Invariant 3."""
    for item in items(task, 50):
        assert item.prompt == item.prompt.rstrip()
        assert item.answer == item.answer.strip()
        assert item.messages[-1]["role"] == "user"


@pytest.mark.parametrize("task", tasks.TASKS)
def test_the_split_has_both_sides(task: str) -> None:
    rng = random.Random(0)
    train = {tasks.sample(task, rng, "train").key for _ in range(100)}
    held = {tasks.sample(task, rng, "heldout").key for _ in range(20)}
    assert train.isdisjoint(held)


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match="split must be"):
        tasks.sample("add", random.Random(0), "test")


def test_no_heldout_question_occurs_in_the_corpus() -> None:
    """Invariant 1, on the text of whole documents: neither as a completion nor inside a chat."""
    rng = random.Random(7)
    seen = {text for _ in range(20_000) for text, _ in corpus.document(rng)}
    for task in set(tasks.TASKS) - {"memory"}:  # its last question is always one of two
        for item in evaluate.heldout_items(task, 40, seed=0):
            assert item.prompt not in seen, item
            assert item.messages[-1]["content"] not in seen, item


def test_the_split_is_stable_across_processes() -> None:
    script = (
        "import json, random\nfrom demo_model import tasks\nrng = random.Random(3)\n"
        "made = [tasks.sample(t, rng) for t in tasks.TASKS for _ in range(20)]\n"
        "print(json.dumps([[i.prompt, i.answer, i.messages, tasks.heldout(i)] for i in made]))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONPATH": str(ROOT / "scripts"), "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=PROGRAM_S,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    flags = [flag for *_, flag in json.loads(runs[0])]
    assert 0 < sum(flags) < len(flags) / 4


def test_the_opening_of_a_story_is_trained_on() -> None:
    opening = next(item for item in items("story", 200) if item.prompt == "Once upon a time")
    assert not tasks.heldout(opening)


def test_the_corpus_depends_on_the_seed_alone(trained: Tokenizer) -> None:
    first, second = (corpus.shard(trained.to_str(), "a seed", 20_000) for _ in range(2))
    other = corpus.shard(trained.to_str(), "another seed", 20_000)
    assert all(
        (a.ids == b.ids).all() and (a.weights == b.weights).all() for a, b in zip(first, second, strict=True)
    )
    assert any(
        a.ids.shape != b.ids.shape or (a.ids != b.ids).any() for a, b in zip(first, other, strict=True)
    )


def test_only_answers_carry_loss(trained: Tokenizer) -> None:
    """The tokens with weight of a one-item chat decode to the answer and its end token."""
    segments = [("<|bos|>", False), ("<|user|>", False), ("2 + 3", False), ("<|end|>", False)]
    segments += [("<|assistant|>", False), ("5", True), ("<|end|>", True)]
    [(ids, weights)] = corpus.encode(trained, [segments])
    assert trained.decode(ids[weights > 0].tolist(), skip_special_tokens=False) == "5<|end|>"


@pytest.mark.parametrize("task", tasks.TASKS)
def test_every_item_fits_the_widest_row(task: str, trained: Tokenizer) -> None:
    for item in items(task, 100, seed=5):
        size = len(trained.encode(item.prompt).ids) + len(trained.encode(f" {item.answer}").ids)
        assert size <= corpus.WIDTHS[-1]


def test_long_outputs_and_long_prompts_exist(trained: Tokenizer) -> None:
    """End-to-end tests need more than 1000 tokens of output, and prompts that prefill in several chunks."""
    outputs = [len(trained.encode(item.answer).ids) for item in items("count_long", 100)]
    prompts = [len(trained.encode(item.prompt).ids) for item in items("lookup_long", 100)]
    assert max(outputs) > 1000
    assert max(prompts) > 1000


def test_tokenizer_training_is_deterministic(trained: Tokenizer) -> None:
    assert tokenizer.train_tokenizer(corpus.sample_texts(3000, 0), 1024).to_str() == trained.to_str()


def test_too_little_text_is_refused() -> None:
    with pytest.raises(ValueError, match="use more text"):
        tokenizer.train_tokenizer(["a b c"], 1024)


@settings(max_examples=300, deadline=None)
@given(text=st.text())
def test_any_text_round_trips(text: str, trained: Tokenizer) -> None:
    assert round_trip(trained, text) == text


def round_trip(tokens: Tokenizer, text: str) -> str:
    return tokens.decode(tokens.encode(text, add_special_tokens=False).ids, skip_special_tokens=False)


@settings(max_examples=300, deadline=None)
@given(text=st.text())
def test_any_text_round_trips_through_the_shipped_tokenizer(text: str) -> None:
    assert round_trip(Tokenizer.from_file(str(SHIPPED)), text) == text


def test_digits_are_single_tokens_and_special_tokens_come_first(trained: Tokenizer) -> None:
    assert trained.encode("12345", add_special_tokens=False).tokens == list("12345")
    assert [trained.id_to_token(i) for i in range(7)] == list(tokenizer.SPECIAL_TOKENS)
    assert trained.encode("a").tokens[0] == tokenizer.BOS
