"""Synthetic tasks whose answers a program can check. Standard library only.

    item = sample("add", random.Random(1))   # any item
    check(item, "579")                       # is this text a right answer?
    heldout(item)                            # True: the item never occurs in training

An item's `key` decides the split. Tasks that must generalise (sums, sorting, copying, look-up) use the
content as key, so that no other phrasing of the same problem is trained on. Closed tables (facts, small
products, spelling, identity) use the phrased question: the fact is trained on, in other words.
"""

import hashlib
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from demo_model import stories, words
from demo_model.phrasings import FORMS

HELDOUT_SHARE = 16  # one key in 16 is held out


@dataclass(frozen=True)
class Item:
    """One problem, as completion text and as chat.

    prompt: completion prompt without trailing white space; the model continues with " " + answer.
    answer: a right answer without outer white space.
    messages: the same problem as chat messages ({"role", "content"}), the last one from the user.
    key: what the held-out hash covers.
    hero: for stories, the slots that the question fixes (several stories are right).
    """

    task: str
    prompt: str
    answer: str
    messages: list[dict[str, str]]
    key: str
    hero: dict[str, str] | None = None


def check(item: Item, text: str) -> bool:
    """True if `text`, without outer white space, is a right answer to `item`."""
    text = text.strip()
    return text == item.answer if item.hero is None else stories.is_story(text, item.hero)


def heldout(item: Item) -> bool:
    """True if the item belongs to the evaluation split. Stable across processes and Python versions."""
    digest = hashlib.blake2b(f"{item.task}|{item.key}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") % HELDOUT_SHARE == 0


def sample(task: str, rng: random.Random, split: str | None = None) -> Item:
    """A random item of `task`; `split` "train" or "heldout" restricts it to one side.

    Raises KeyError for an unknown task and ValueError for an unknown split.
    """
    if split not in (None, "train", "heldout"):
        raise ValueError(f"split must be 'train', 'heldout' or None, not {split!r}")
    while True:
        item = TASKS[task](rng)
        if split is None or heldout(item) == (split == "heldout"):
            return item


def _item(
    rng: random.Random,
    task: str,
    question: str,
    answer: str,
    key: str | None = None,
    hero: dict[str, str] | None = None,
) -> Item:
    """Phrase `question` for both styles, with small variations that the key does not see."""
    key = question if key is None else key
    bare = not question.endswith(("?", "."))  # the beginning of a sentence, or "2 + 3 ="
    if question.endswith(".") and "\n" not in question and rng.random() < 0.08:
        question = f"Please {question[0].lower()}{question[1:]}"
    if not bare and rng.random() < 0.12:
        question = question[:-1]
    if rng.random() < 0.06:
        question = question[0].lower() + question[1:]
    frames = ("{}",) if bare else ("{}", "{}", "Q: {}\nA:", "Q: {}\nA:", "Question: {}\nAnswer:")
    prompt = rng.choice(frames).format(question)
    return Item(task, prompt, answer, [{"role": "user", "content": question}], key, hero)


def _form(rng: random.Random, form: str, **values: object) -> str:
    return re.sub(r"\b([Aa]) (?=[aeio][a-z])", r"\1n ", rng.choice(FORMS[form]).format(**values))


def _operand(rng: random.Random) -> int:
    return rng.randrange(rng.choice((10, 100, 1000, 1000)))


def add(rng: random.Random) -> Item:
    """Sum of two numbers below 1000."""
    a, b = _operand(rng), _operand(rng)
    return _item(rng, "add", _form(rng, "add", a=a, b=b), str(a + b), f"{a} {b}")


def subtract(rng: random.Random) -> Item:
    """Difference of two numbers below 1000, never negative."""
    a, b = sorted((_operand(rng), _operand(rng)), reverse=True)
    return _item(rng, "subtract", _form(rng, "subtract", a=a, b=b), str(a - b), f"{a} {b}")


def multiply(rng: random.Random) -> Item:
    """Product up to 12 x 12, or of a one-digit and a two-digit number."""
    limits = rng.choice(((13, 13), (10, 100), (100, 10)))
    a, b = rng.randrange(limits[0]), rng.randrange(limits[1])
    return _item(rng, "multiply", _form(rng, "multiply", a=a, b=b), str(a * b))


def _count(rng: random.Random, task: str, numbers: range) -> Item:
    a, b, step = numbers[0], numbers[-1], numbers.step
    form = "count down" if step < 0 else "count in steps" if step > 1 else "count up"
    question = _form(rng, form, a=a, b=b, s=step)
    return _item(rng, task, question, ", ".join(map(str, numbers)), f"{a} {b} {step}")


def count(rng: random.Random) -> Item:
    """Up to 40 numbers below 1000: up, down, or in steps of 2, 5 or 10."""
    step = rng.choice((1, 1, 1, 1, 2, 5, 10))
    length = rng.randrange(3, 41 if step == 1 else 21)
    first = rng.randrange(rng.choice((2, 100, 1000 - step * length)))
    numbers = range(first, first + step * length, step)
    return _count(rng, "count", numbers[::-1] if step == 1 and rng.random() < 0.3 else numbers)


def count_long(rng: random.Random) -> Item:
    """80 to 300 numbers: 400 to 1500 tokens of output."""
    length = rng.randrange(80, 301)
    first = 1 if rng.random() < 0.3 else rng.randrange(1000 - length)
    return _count(rng, "count_long", range(first, first + length))


def table(rng: random.Random) -> Item:
    """Times table with 10 to 60 lines: up to 700 tokens of output."""
    a, n = rng.randrange(2, 13), rng.randrange(10, 61)
    answer = "\n".join(f"{a} x {i} = {a * i}" for i in range(1, n + 1))
    return _item(rng, "table", _form(rng, "table", a=a, n=n), answer, f"{a} {n}")


def sort_words(rng: random.Random) -> Item:
    """Three to seven different words in alphabetical order."""
    picked = rng.sample(words.WORDS, rng.randrange(3, 8))
    listed = ", ".join(picked)
    return _item(rng, "sort_words", _form(rng, "sort_words", x=listed), ", ".join(sorted(picked)), listed)


def sort_numbers(rng: random.Random) -> Item:
    """Three to seven different numbers below 100, in either direction."""
    picked, down = rng.sample(range(100), rng.randrange(3, 8)), rng.random() < 0.3
    listed = ", ".join(map(str, picked))
    answer = ", ".join(map(str, sorted(picked, reverse=down)))
    question = _form(rng, "sort down" if down else "sort up", x=listed)
    return _item(rng, "sort_numbers", question, answer, f"{listed} {down}")


def reverse(rng: random.Random) -> Item:
    """Three to ten different words in reverse order."""
    picked = rng.sample(words.WORDS, rng.randrange(3, 11))
    listed = ", ".join(picked)
    return _item(rng, "reverse", _form(rng, "reverse", x=listed), ", ".join(picked[::-1]), listed)


def spell(rng: random.Random) -> Item:
    """A word letter by letter, forwards or backwards."""
    word, back = rng.choice(words.WORDS), rng.random() < 0.5
    question = _form(rng, "spell backwards" if back else "spell", w=word)
    return _item(rng, "spell", question, " ".join(reversed(word) if back else word))


def _copy_token(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.7:
        return rng.choice(words.WORDS)
    if kind < 0.85:
        return str(_operand(rng))
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(2, 7)))


def copy(rng: random.Random) -> Item:
    """Repeat 2 to 24 words, numbers or made-up words."""
    text = " ".join(_copy_token(rng) for _ in range(rng.randrange(2, 25)))
    return _item(rng, "copy", _form(rng, "copy", x=text), text, text)


def unicode(rng: random.Random) -> Item:
    """Repeat 1 to 8 words in many scripts, emoji included: characters that span several tokens."""
    text = " ".join(rng.choices(words.UNICODE_WORDS, k=rng.randrange(1, 9)))
    return _item(rng, "unicode", _form(rng, "copy", x=text), text, text)


def repeat(rng: random.Random) -> Item:
    """A numbered list of one word, 2 to 60 lines."""
    word, n = rng.choice(words.WORDS), rng.randrange(2, rng.choice((13, 61)))
    answer = "\n".join(f"{i}. {word}" for i in range(1, n + 1))
    return _item(rng, "repeat", _form(rng, "repeat", w=word, n=n), answer, f"{word} {n}")


def fact(rng: random.Random) -> Item:
    """Closed tables: capitals, opposites, sounds, young animals, legs, colours, days and months."""
    relation, forms = rng.choice(words.RELATIONS)
    x = rng.choice(list(relation))
    return _item(rng, "fact", rng.choice(forms).format(x=x), relation[x])


def identity(rng: random.Random) -> Item:
    """Who the model is, what it can do, and greetings."""
    prefix, question = rng.choice(words.IDENTITY_PREFIXES), rng.choice(list(words.IDENTITY))
    asked = prefix + (question if prefix.endswith(", ") else question[0].upper() + question[1:])
    return _item(rng, "identity", asked, words.IDENTITY[question])


def _lookup(rng: random.Random, task: str, count: int) -> Item:
    people = rng.sample(words.NAMES, count)
    facts = {name: (rng.choice(words.CITIES), rng.choice(words.COLOURS)) for name in people}
    lines = [f"{name} lives in {city} and likes {colour}." for name, (city, colour) in facts.items()]
    text = "- " + "\n- ".join(lines) if rng.random() < 0.5 else "Facts: " + " ".join(lines)
    name, which = rng.choice(people), rng.randrange(2)
    question = f"{text}\n{_form(rng, ('where', 'colour')[which], n=name)}"
    return _item(rng, task, question, facts[name][which], f"{text}|{name}|{which}")


def lookup(rng: random.Random) -> Item:
    """Answer a question about one of 2 to 16 people just described."""
    return _lookup(rng, "lookup", rng.randrange(2, 17))


def lookup_long(rng: random.Random) -> Item:
    """The same with 40 to 118 people: prompts of up to 1200 tokens."""
    return _lookup(rng, "lookup_long", rng.randrange(40, 119))


def story(rng: random.Random) -> Item:
    """A short story from a grammar; every story of the grammar about the right hero is right."""
    text, slots = stories.tell(rng)
    if rng.random() < 0.1:
        opening = [{"role": "user", "content": stories.OPENING}]
        return Item("story", stories.OPENING, text, opening, "open", {})
    hero = {slot: slots[slot] for slot in ("name", "animal")}
    question = _form(rng, "story", **hero)
    return _item(rng, "story", question, f"{stories.OPENING} {text}", " ".join(hero.values()), hero)


def memory(rng: random.Random) -> Item:
    """Several turns: the user states a name and a colour, then asks for one, 0 to 3 other turns later."""
    name, colour = rng.choice(words.NAMES), rng.choice(words.COLOURS)
    told = [
        (_form(rng, "own name", x=name), f"Nice to meet you, {name}!"),
        (_form(rng, "own colour", x=colour), f"{colour.capitalize()} is nice!"),
    ]
    rng.shuffle(told)
    others = [sample(rng.choice(SHORT), rng, "train") for _ in range(rng.randrange(4))]
    turns = told + [(other.messages[-1]["content"], other.answer) for other in others]
    ask_name = rng.random() < 0.5
    question = "What is my name?" if ask_name else "What is my favourite colour?"
    answer = f"Your name is {name}." if ask_name else f"Your favourite colour is {colour}."
    roles = ("user", "assistant")
    messages = [{"role": r, "content": text} for turn in turns for r, text in zip(roles, turn, strict=True)]
    messages.append({"role": "user", "content": question})
    return Item("memory", transcript(messages), answer, messages, f"{name} {colour} {ask_name}")


def transcript(messages: list[dict[str, str]]) -> str:
    """Chat messages as a completion prompt that ends where the assistant speaks."""
    lines = [f"{message['role'].capitalize()}: {message['content']}" for message in messages]
    return "\n".join([*lines, "Assistant:"])


_NUMBERS = [add, subtract, multiply, count, count_long, table, sort_numbers]
_TEXTS = [
    sort_words,
    reverse,
    spell,
    copy,
    unicode,
    repeat,
    fact,
    identity,
    lookup,
    lookup_long,
    story,
    memory,
]
TASKS: dict[str, Callable[[random.Random], Item]] = {make.__name__: make for make in _NUMBERS + _TEXTS}

#: Tasks whose question and answer take fewer than 60 tokens.
SHORT = ("add", "subtract", "multiply", "sort_words", "sort_numbers", "spell", "fact", "identity")
