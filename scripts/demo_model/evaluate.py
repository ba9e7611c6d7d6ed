"""Evaluation: batched greedy decoding of held-out items, with a table of right answers per task."""

import random
import sys
import time
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from demo_model import tasks, tokenizer
from demo_model.model import Llama

STYLES = ("completion", "chat")
TRIES = 40  # draws per wanted item before a closed task counts as exhausted


@dataclass(frozen=True)
class Generation:
    """One greedy continuation. margin: the smallest distance between the two best logits on the way."""

    ids: list[int]
    margin: float


@dataclass(frozen=True)
class Wrong:
    """A wrong answer: what was asked, what would be right, what came."""

    prompt: str
    answer: str
    got: str


@dataclass(frozen=True)
class Score:
    """Result of one task in one style; `wrong` holds the first wrong answers."""

    items: int
    right: int
    share: float
    smallest_margin: float
    longest_output: int
    wrong: list[Wrong]


def heldout_items(task: str, count: int, seed: int) -> list[tasks.Item]:
    """Up to `count` held-out items with different prompts."""
    rng = random.Random(f"evaluation {seed} {task}")
    found: dict[str, tasks.Item] = {}
    for _ in range(TRIES * count):
        item = tasks.sample(task, rng)
        if tasks.heldout(item):
            found.setdefault(item.messages[-1]["content"] if task != "memory" else item.prompt, item)
            if len(found) == count:
                break
    return list(found.values())


def chat_text(messages: list[dict[str, str]]) -> str:
    """What the chat template renders with add_generation_prompt."""
    turns = "".join(f"<|{m['role']}|>{m['content']}{tokenizer.END}" for m in messages)
    return f"{tokenizer.BOS}{turns}{tokenizer.ASSISTANT}"


def prompt_ids(tokens: Tokenizer, item: tasks.Item, style: str) -> list[int]:
    """The item's prompt as token ids; `style` is one of STYLES."""
    if style == "chat":
        return tokens.encode(chat_text(item.messages), add_special_tokens=False).ids
    return tokens.encode(item.prompt).ids


@torch.no_grad()
def generate(model: Llama, prompts: list[list[int]], max_new: int, stop: set[int]) -> list[Generation]:
    """Greedy continuations of up to `max_new` tokens, without the stop token."""
    device, batch, width = model.cos.device, len(prompts), max(map(len, prompts))
    limit = min(max_new, model.config.max_position_embeddings - width)
    caches = model.new_caches(batch, width + limit)
    pads = torch.tensor([width - len(p) for p in prompts], device=device)
    ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts], device=device)
    key = torch.arange(width + limit, device=device)
    real = key[None, :] >= pads[:, None]
    causal = key[:width, None] >= key[None, :width]
    # A padded query sees itself, so that its softmax is defined; no real query sees it.
    mask = ((causal & real[:, None, :width]) | torch.eye(width, dtype=torch.bool, device=device)).unsqueeze(1)
    positions = (key[:width][None] - pads[:, None]).clamp(min=0)
    stops = torch.tensor(sorted(stop), device=device)
    done = torch.zeros(batch, dtype=torch.bool, device=device)
    margins = torch.full((batch,), torch.inf, device=device)
    out: list[Tensor] = []
    for step in range(limit):
        at = width + step - 1
        if step == 0:
            hidden = model(ids, positions, mask, caches, 0)
        else:
            hidden = model(out[-1][:, None], (at - pads)[:, None], real[:, None, None, : at + 1], caches, at)
        best, token = model.logits(hidden[:, -1]).topk(2, dim=-1)
        margins = torch.where(done, margins, torch.minimum(margins, best[:, 0] - best[:, 1]))
        out.append(token[:, 0])
        done |= torch.isin(token[:, 0], stops)
        if step % 16 == 15 and bool(done.all()):
            break
    texts = torch.stack(out, dim=1).tolist()
    cut = [next((i for i, t in enumerate(row) if t in stop), len(row)) for row in texts]
    return [Generation(row[:n], m) for row, n, m in zip(texts, cut, margins.tolist(), strict=True)]


def evaluate(model: Llama, tokens: Tokenizer, per_task: int, seed: int, batch: int) -> dict[str, Score]:
    """Greedy decoding of held-out items, up to `per_task` of each task; keys are "task/style"."""
    scores = {}
    for task in tasks.TASKS:
        items = heldout_items(task, per_task, seed)
        for style in STYLES:
            started = time.monotonic()
            score = scores[f"{task}/{style}"] = evaluate_task(model, tokens, items, style, batch)
            line = f"{task + '/' + style:24s} {score.right:4d}/{score.items:<4d} {score.share:8.2%}"
            print(f"evaluate: {line} {time.monotonic() - started:5.1f} s", file=sys.stderr, flush=True)
    return scores


def evaluate_task(model: Llama, tokens: Tokenizer, items: list[tasks.Item], style: str, batch: int) -> Score:
    """Greedy decoding of `items`, `batch` at a time, prompts of similar length together."""
    stop = {tokenizer.special_id(tokens, token) for token in (tokenizer.EOS, tokenizer.END)}
    longest = max(len(tokens.encode(f" {item.answer}").ids) for item in items) + 24
    pairs = sorted(((prompt_ids(tokens, item, style), item) for item in items), key=lambda pair: len(pair[0]))
    results = []
    for i in range(0, len(pairs), batch):
        results += generate(model, [ids for ids, _ in pairs[i : i + batch]], longest, stop)
    texts = [tokens.decode(result.ids) for result in results]
    wrong = [
        (item, text) for (_, item), text in zip(pairs, texts, strict=True) if not tasks.check(item, text)
    ]
    return Score(
        items=len(items),
        right=len(items) - len(wrong),
        share=1 - len(wrong) / len(items),
        smallest_margin=min(result.margin for result in results),
        longest_output=max(len(result.ids) for result in results),
        wrong=[Wrong(item.prompt, item.answer, text) for item, text in wrong[:3]],
    )
