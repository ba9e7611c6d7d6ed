"""Short stories from a grammar, and the check that a text is one of them. Standard library only."""

import random
import re
from collections.abc import Sequence

from demo_model import words

OPENING = "Once upon a time"

#: Values of each slot; a story keeps a slot's value to the end.
SLOTS: dict[str, Sequence[str]] = {
    "name": words.NAMES,
    "animal": [
        *("cat", "dog", "fox", "bear", "rabbit", "mouse", "owl", "frog"),
        *("duck", "lion", "pig", "horse", "goat", "deer", "hen", "turtle"),
    ],
    "trait": ["small", "brave", "kind", "clever", "shy", "happy"],
    "place": ("forest", "garden", "little house", "castle", "village", "valley"),
    "time": ("morning", "evening", "summer day", "winter night"),
    "colour": ["red", "blue", "green", "yellow", "white", "black", "golden"],
    "thing": ("ball", "hat", "key", "kite", "stone", "box", "feather"),
    "friend": ["bird", "squirrel", "hedgehog", "bee", "crow", "snail"],
}
#: The sentences in order, each in one of its variants. Braces name a slot.
GROUPS: tuple[tuple[str, ...], ...] = (
    ("there was a {trait} {animal} named {name}.",),
    ("{name} lived in a {place}.", "{name} loved the {place}."),
    ("One {time}, {name} found a {colour} {thing}.", "One {time}, {name} lost a {colour} {thing}."),
    ('"What a day!" said {name}.', "{name} did not know what to do.", "{name} looked at the sky and smiled."),
    ("Then a {friend} came by.", "Just then, {name} met a {friend}."),
    ("They played with the {thing} until it was dark.", "The {friend} knew all about the {thing}."),
    ("In the end, {name} and the {friend} became friends.", "After that, the {friend} came back every day."),
    ("The {trait} {animal} was never alone again.", "And {name} went home to the {place}."),
)


def tell(rng: random.Random) -> tuple[str, dict[str, str]]:
    """A random story without its opening, and its slots' values."""
    slots = {slot: rng.choice(values) for slot, values in SLOTS.items()}
    return " ".join(rng.choice(group) for group in GROUPS).format(**slots), slots


def is_story(text: str, hero: dict[str, str]) -> bool:
    """True if `text`, with or without the opening, is a story of the grammar with `hero`'s slot values."""
    bound = dict(hero)
    text = text.removeprefix(f"{OPENING} ") + " "

    def slot(match: re.Match[str]) -> str:
        return bound.get(match[1]) or f"(?P<{match[1]}>{'|'.join(SLOTS[match[1]])})"

    for group in GROUPS:
        tries = (re.match(re.sub(r"\\{(\w+)\\}", slot, re.escape(variant + " ")), text) for variant in group)
        found = next((match for match in tries if match), None)
        if found is None:
            return False
        bound |= found.groupdict()
        text = text[found.end() :]
    return not text
