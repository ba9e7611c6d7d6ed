"""Closed vocabularies of the synthetic tasks: words, names, facts, story parts. Data only."""


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _table(text: str) -> dict[str, str]:
    """Parse "key: value, key: value"."""
    return dict(pair.split(": ") for pair in text.split(", "))


NAMES = _split(
    "Ada Adam Alan Alice Amir Amy Ana Andy Anna Arlo Ben Beth Bob Boris Bruno Carl Carol Celia Chloe Clara "
    "Cora Dan Dana David Dean Dora Ed Elena Eli Ella Emil Emma Eric Erin Eva Finn Fay Felix Fiona Fred "
    "Gina Glen Grace Greg Gus Hana Hank Helen Hugo Ian Ida Igor Ines Iris Ivan Ivy Jack Jade Jan Jane "
    "Jean Jim Joan Joe John Jon Jude June Kai Karl Kate Ken Kim Kira Kurt Lana Lara Lea Leo Lena "
    "Lily Lisa Liz Luca Lucy Luis Luke Luna Mara Marc Maria Mark Mary Max May Mia Mike Mila Mira Nadia "
    "Nick Nina Noah Nora Olga Oscar Otto Pam Paul Pete Petra Rita Rob Rosa Ruth Sam Sara Sofia Tim Tom"
)

WORDS = _split(
    "acorn anchor apple arrow badge bagel banana barn basket bell bench berry boat bottle bread bridge "
    "brush bucket butter button cabin cable cactus cake camera candle carpet carrot castle cellar chair "
    "cherry circle clock cloud coat cookie copper corner cotton crayon cup curtain daisy desk diamond "
    "door dream drum eagle engine fabric feather fence field finger flag flower forest fork garden "
    "ghost glass globe grape guitar hammer harbor hat helmet hill honey horn hotel house island jacket "
    "jam jungle kettle key kitchen kite ladder lake lamp lemon letter lime lizard magnet map marble "
    "meadow melon mirror moon mountain napkin needle nest ocean olive onion orange oven paint paper "
    "peach pear pencil pepper piano pillow planet plate pocket puzzle quilt rabbit radio rain ribbon "
    "ring river robot rocket roof rope rose saddle salt school shell ship shoe silver spoon square star "
    "stone sugar summer table tea tent ticket tiger tomato tower train tree trumpet tulip umbrella "
    "valley vase velvet village violin wagon wall watch water wheel window winter yarn zebra"
)

UNICODE_WORDS = _split(
    "café naïve jalapeño über straße façade crème piñata señor año smörgås ångström łódź český žena "
    "привет мир книга дом вода Ελλάδα φως νερό שלום سلام नमस्ते 日本 東京 中文 你好 世界 ありがとう 한국 안녕 "
    "😀 😂 🎉 🚀 🌍 🌈 🍎 🍕 🐱 🐶 🔥 ⭐ ❤️ 👍 👩‍🚀 🇫🇷 € £ ¥ ∑ √ ≈ → ½"
)

COLOURS = _split("red blue green yellow orange purple pink brown black white grey gold")

CAPITALS = _table(
    "France: Paris, Germany: Berlin, Italy: Rome, Spain: Madrid, Portugal: Lisbon, Austria: Vienna, "
    "Greece: Athens, Poland: Warsaw, Norway: Oslo, Sweden: Stockholm, Finland: Helsinki, Denmark: "
    "Copenhagen, Ireland: Dublin, Hungary: Budapest, Belgium: Brussels, Russia: Moscow, Turkey: Ankara, "
    "Egypt: Cairo, Kenya: Nairobi, Ghana: Accra, Japan: Tokyo, China: Beijing, India: New Delhi, "
    "Thailand: Bangkok, Vietnam: Hanoi, Nepal: Kathmandu, Iran: Tehran, Iraq: Baghdad, Canada: Ottawa, "
    "Mexico: Mexico City, Cuba: Havana, Peru: Lima, Chile: Santiago, Brazil: Brasilia, Argentina: "
    "Buenos Aires, Australia: Canberra, Bulgaria: Sofia, Croatia: Zagreb, Latvia: Riga, England: London"
)

CITIES = _split(
    "Paris Berlin Rome Madrid Lisbon Vienna Athens Warsaw Oslo Dublin Moscow Cairo Tokyo Lima London Riga"
)

OPPOSITES = _table(
    "hot: cold, big: small, fast: slow, up: down, left: right, day: night, happy: sad, old: new, open: "
    "closed, full: empty, high: low, hard: soft, wet: dry, early: late, light: dark, near: far, rich: "
    "poor, strong: weak, long: short, loud: quiet"
)

SOUNDS = _table(
    "dog: woof, cat: meow, cow: moo, duck: quack, sheep: baa, lion: roar, pig: oink, frog: ribbit, bee: "
    "buzz, owl: hoot, snake: hiss, mouse: squeak"
)

BABIES = _table(
    "dog: puppy, cat: kitten, cow: calf, duck: duckling, sheep: lamb, lion: cub, pig: piglet, frog: "
    "tadpole, horse: foal, goat: kid, deer: fawn, hen: chick"
)

LEGS = _table(
    "dog: 4, cat: 4, cow: 4, duck: 2, spider: 8, bee: 6, ant: 6, snake: 0, hen: 2, horse: 4, fish: 0, "
    "crab: 10"
)

THING_COLOURS = _table(
    "the sky: blue, grass: green, snow: white, coal: black, a banana: yellow, a tomato: red, a carrot: "
    "orange, a plum: purple, chocolate: brown, an elephant: grey, the sun: yellow, blood: red, milk: "
    "white, a pea: green, a flamingo: pink, a crow: black"
)

DAYS = _split("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = _split("January February March April May June July August September October November December")
NEXT = {name: ring[(i + 1) % len(ring)] for ring in (DAYS, MONTHS) for i, name in enumerate(ring)}
PREVIOUS = {after: before for before, after in NEXT.items()}

#: Each relation: (table, phrasings). A phrasing is a question or the beginning of a sentence.
RELATIONS: tuple[tuple[dict[str, str], tuple[str, ...]], ...] = (
    (
        CAPITALS,
        (
            "What is the capital of {x}?",
            "The capital of {x} is",
            "Which city is the capital of {x}?",
            "Name the capital of {x}.",
            "Tell me the capital of {x}.",
            "{x}'s capital is",
            "Capital of {x}?",
            "What is {x}'s capital city?",
        ),
    ),
    (
        OPPOSITES,
        (
            "What is the opposite of {x}?",
            "The opposite of {x} is",
            "Name the opposite of {x}.",
            "Tell me the opposite of {x}.",
            "Opposite of {x}?",
            "Which word is the opposite of {x}?",
        ),
    ),
    (
        SOUNDS,
        (
            "What does the {x} say?",
            "What sound does the {x} make?",
            "The {x} says",
            "The {x} makes the sound",
            "Which sound does the {x} make?",
            "Tell me the sound of the {x}.",
        ),
    ),
    (
        BABIES,
        (
            "What is a baby {x} called?",
            "A baby {x} is called a",
            "Name the young of a {x}.",
            "What do you call a baby {x}?",
            "The young of a {x} is a",
            "Tell me the name of a baby {x}.",
        ),
    ),
    (
        LEGS,
        (
            "How many legs does the {x} have?",
            "The number of legs of the {x} is",
            "Tell me how many legs the {x} has.",
            "How many legs has the {x}?",
            "Number of legs of the {x}?",
        ),
    ),
    (
        THING_COLOURS,
        (
            "What colour is {x}?",
            "The colour of {x} is",
            "Which colour does {x} have?",
            "Tell me the colour of {x}.",
            "Name the colour of {x}.",
            "What is the colour of {x}?",
        ),
    ),
    (
        NEXT,
        (
            "What comes after {x}?",
            "After {x} comes",
            "Which one follows {x}?",
            "What is next after {x}?",
            "Tell me what comes after {x}.",
        ),
    ),
    (
        PREVIOUS,
        (
            "What comes before {x}?",
            "Before {x} comes",
            "What is right before {x}?",
            "Tell me what comes before {x}.",
            "Which one precedes {x}?",
        ),
    ),
)

#: Identity: question -> answer, and greetings that may precede the question.
IDENTITY_PREFIXES = ("", "Hello! ", "Hi. ", "Hey, ", "Good morning! ", "Sorry, ")
ABOUT = "I am Blink's demo model, a small language model trained on synthetic tasks."
ABILITIES = (
    "I can add, subtract, multiply, count, sort, spell, repeat, remember facts and tell short stories."
)
GREETING = "Hello! I am Blink's demo model. How can I help you?"
IDENTITY = {
    "who are you?": ABOUT,
    "what are you?": ABOUT,
    "what is your name?": ABOUT,
    "introduce yourself.": ABOUT,
    "tell me about yourself.": ABOUT,
    "which model are you?": ABOUT,
    "what model is this?": ABOUT,
    "what can you do?": ABILITIES,
    "how can you help me?": ABILITIES,
    "what are you good at?": ABILITIES,
    "which tasks do you know?": ABILITIES,
    "help!": ABILITIES,
    "what are your skills?": ABILITIES,
    "how are you?": GREETING,
    "nice to meet you.": GREETING,
    "good day.": GREETING,
    "hello again.": GREETING,
}

SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are Blink's demo model.",
    "Answer briefly.",
    "Be short and exact.",
    "You are a careful assistant that gives correct answers.",
)
