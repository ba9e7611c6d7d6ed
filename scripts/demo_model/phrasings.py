"""How the synthetic tasks are asked. Data only.

A phrasing that ends in "?" or "." is a question; any other one is the beginning of a text that the answer
continues.
"""

FORMS: dict[str, tuple[str, ...]] = {
    "add": (
        "What is {a} + {b}?",
        "{a} + {b} =",
        "{a} + {b}",
        "Add {a} and {b}.",
        "How much is {a} plus {b}?",
        "What is {a} plus {b}?",
        "Calculate {a} + {b}.",
        "Compute {a} + {b}.",
        "What is the sum of {a} and {b}?",
    ),
    "subtract": (
        "What is {a} - {b}?",
        "{a} - {b} =",
        "{a} - {b}",
        "Subtract {b} from {a}.",
        "How much is {a} minus {b}?",
        "What is {a} minus {b}?",
        "Calculate {a} - {b}.",
        "Compute {a} - {b}.",
    ),
    "multiply": (
        "What is {a} * {b}?",
        "{a} * {b} =",
        "{a} x {b} =",
        "Multiply {a} by {b}.",
        "How much is {a} times {b}?",
        "What is {a} times {b}?",
        "What is {a} x {b}?",
        "Calculate {a} * {b}.",
    ),
    "count up": (
        "Count from {a} to {b}.",
        "Count up from {a} to {b}.",
        "List the numbers from {a} to {b}.",
        "Write the numbers from {a} to {b}.",
        "Can you count from {a} to {b}?",
    ),
    "count down": (
        "Count down from {a} to {b}.",
        "Count backwards from {a} to {b}.",
        "Count from {a} down to {b}.",
    ),
    "count in steps": (
        "Count from {a} to {b} in steps of {s}.",
        "Count by {s} from {a} to {b}.",
    ),
    "table": (
        "Write the {a} times table up to {n}.",
        "Write the multiplication table of {a} up to {n}.",
        "List the multiples of {a} from 1 to {n} times.",
        "Show the table of {a} up to {n}.",
    ),
    "sort_words": (
        "Sort these words alphabetically: {x}.",
        "Put these words in alphabetical order: {x}.",
        "Sort the words {x}.",
        "Alphabetical order of {x}?",
    ),
    "sort up": (
        "Sort these numbers: {x}.",
        "Sort the numbers {x}.",
        "Put these numbers in order: {x}.",
        "Sort from smallest to largest: {x}.",
    ),
    "sort down": (
        "Sort from largest to smallest: {x}.",
        "Sort these numbers in descending order: {x}.",
    ),
    "reverse": (
        "Reverse this list: {x}.",
        "Write these words in reverse order: {x}.",
        "Reverse the order of {x}.",
    ),
    "spell": (
        "Spell the word {w}.",
        "Spell {w}.",
        "How do you spell {w}?",
        "What are the letters of {w}?",
        "Write {w} letter by letter.",
        "Spell the word {w} for me.",
    ),
    "spell backwards": (
        "Spell {w} backwards.",
        "Spell the word {w} backwards.",
        "How do you spell {w} backwards?",
        "Write the letters of {w} in reverse.",
        "What is {w} spelled backwards?",
    ),
    "copy": (
        "Repeat after me: {x}.",
        "Repeat: {x}.",
        "Say this: {x}.",
        'Repeat the text "{x}".',
        "Copy this text: {x}.",
    ),
    "repeat": (
        "Write the word {w} {n} times.",
        "Write {w} {n} times.",
        "List the word {w} {n} times.",
        "Repeat the word {w} {n} times.",
    ),
    "where": ("Where does {n} live?", "In which city does {n} live?"),
    "colour": ("Which colour does {n} like?", "What colour does {n} like?"),
    "story": (
        "Tell me a story about {name} the {animal}.",
        "Tell me a story about a {animal} named {name}.",
        "Write a short story about a {animal} named {name}.",
        "Write a story about {name} the {animal}.",
    ),
    "own name": ("My name is {x}.", "I am called {x}."),
    "own colour": ("My favourite colour is {x}.", "I like {x} best."),
}
