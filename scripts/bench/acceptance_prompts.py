"""What scripts/bench/real_acceptance.py asks: for answers that repeat what was said, and for others."""

from __future__ import annotations

import random

from demo_model.tasks import sample

LIGHTHOUSE = """The lighthouse on Gull Rock was built in 1871 after three ships were lost in one winter.
It is 34 metres high and made of grey granite from the quarry at Penmar. For a century a keeper and two
assistants lived there with their families. They carried oil up 176 steps every evening and trimmed the
wick at midnight. In 1923 the oil lamp was replaced by an electric one, and in 1978 the last keeper left,
because the light had become automatic. Today the tower belongs to a society of volunteers. They paint it
every third year, show visitors the old lens on Sundays, and want to open a small museum in the keeper's
cottage if they find the money for a new roof."""
MEETING = """Anna opened the meeting at nine. Ben reported that the new pump had arrived on Monday and
that it would be installed by Thursday. Carla asked whether the old pump could be kept as a spare. Ben
said that it leaked and should be sold. Anna reminded everybody that the budget for repairs was 4,000
euros, of which 2,700 were spent. David offered to write to the supplier about the missing gasket. It was
agreed that Ben installs the pump, that Carla looks for a buyer of the old one, and that David writes to
the supplier before Friday. The next meeting is in two weeks."""
GARDEN = """My garden is small, but it gives me alot of joy. In the spring I plant tomatos, beans and
lettuce. In summer I water the plants every evening, becuase the sun is very strong here. My neighbour he
has a big dog which sometimes jump over the fence and digs holes. In autumn we collects apples and make
juice of them. Last year we has had so many apples that we gave half of it to the school."""
LETTER = """Dear Mr Baker, thank you for your letter of 3 May. Mr Baker, your order of twelve chairs and
two tables was sent on 5 May. The chairs are made of oak, and the tables are made of beech. The invoice of
1,480 dollars is enclosed. If a chair is damaged, please write to us within ten days. Yours sincerely,
Ellen Fisher, Fisher and Sons Furniture."""
CLASS = """class Account:
    def __init__(self, owner, balance):
        self.owner = owner
        self.balance = balance

    def deposit(self, amount):
        self.balance = self.balance + amount
        return self.balance

    def withdraw(self, amount):
        self.balance = self.balance - amount
        return self.balance"""
LOOP = """def total_price(items):
    total = 0
    for i in range(len(items)):
        total = total + items[i].price * items[i].count
    return total

def total_weight(items):
    total = 0
    for i in range(len(items)):
        total = total + items[i].weight * items[i].count
    return total"""
TEXTS: dict[str, tuple[str, ...]] = {
    "summary": (
        f"Summarize the following text in three sentences.\n\n{LIGHTHOUSE}",
        f"Summarize these minutes as a list of who has to do what.\n\n{MEETING}",
        f"What is the following text about? Quote its most important sentence.\n\n{LIGHTHOUSE}",
        f"Write the main points of this text as a list.\n\n{MEETING}",
    ),
    "edit": (
        f"Correct the mistakes in this text and write the whole text again.\n\n{GARDEN}",
        f"Write this letter again, but replace Mr Baker by Mrs Stone everywhere.\n\n{LETTER}",
        f"Repeat this text, but put every number in words.\n\n{LETTER}",
        f"Copy the following text exactly.\n\n{GARDEN}",
    ),
    "code": (
        f"Add a docstring to each method of this class and write the whole class.\n\n```python\n{CLASS}\n```",
        f"Rewrite this code so that the loops run over the items themselves.\n\n```python\n{LOOP}\n```",
        f"Rename balance to credit in this code and write all of it.\n\n```python\n{CLASS}\n```",
        f"Write a test for each of these functions.\n\n```python\n{LOOP}\n```",
    ),
    "count": (
        "Count from 1 to 60, with commas between the numbers.",
        "Write the multiplication table of 7 up to 7 x 20, one line each.",
        "List all even numbers from 2 to 100.",
        "Count down from 50 to 1.",
    ),
    "free": (
        "Tell me a story about a clockmaker who finds a map.",
        "Why is the sky blue?",
        "What should I think of before I adopt a cat?",
        "Write a short poem about the sea in winter.",
    ),
}
TASKS = {  # those of the demo model
    "copy": ("repeat", "copy"),
    "look-up": ("lookup_long",),
    "count": ("count_long", "table"),
    "spell": ("spell", "sort_words"),
    "story": ("story",),
}
EACH = 4


def of_tasks() -> dict[str, tuple[str, ...]]:
    """Held-out tasks of the demo model, by kind, in the form of TEXTS."""
    rng = random.Random(7)
    return {
        kind: tuple(
            sample(names[i % len(names)], rng, split="heldout").messages[-1]["content"] for i in range(EACH)
        )
        for kind, names in TASKS.items()
    }
