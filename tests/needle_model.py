"""A model whose attention looks things up at any distance, with weights made by hand: two layers, no MLP.

    layer 1   attends to the token before, by fast rotations alone, and notes which it was
    layer 2   attends to the positions whose note is the present token, by slow rotations, and copies what
              is there

So after a prompt that ends with a token that occurred once before, the model repeats what followed it there.
One head of each layer does all of it. A token is a code of +1 and -1, orthogonal to all others' or opposite.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from engine_driver import EngineDriver
from numpy.typing import NDArray
from safetensors.numpy import save_file

CODE = 32  # elements of a token's code
VOCAB = 2 * CODE
HIDDEN = 256
INTERMEDIATE = 256
SLOW_TURN = 0.33  # radians, of the slow half's fastest rotation over the whole context
NEXT_SCORE = 40.0  # a fast pair's part of the score of the token before
MATCH_SCORE = 1.5  # an element's part of the score of a matching note
ANSWER = 8  # tokens
# Where the residual stream holds what: a constant, the token's code, the note, the copy.
CONSTANT, TOKEN, NOTE, COPY = 0, slice(1, 33), slice(33, 65), slice(65, 97)


def codes() -> NDArray[np.float32]:
    """[VOCAB][CODE]: the rows of a Hadamard matrix, and their opposites."""
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < CODE:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return np.concatenate([matrix, -matrix])


def make_needle_model(
    directory: Path, n_heads: int, n_kv_heads: int, head_dim: int, head: int, max_context: int
) -> None:
    """`head` is the one that works; the others copy nothing."""
    group = head // (n_heads // n_kv_heads)
    half = head_dim // 2
    slow = np.concatenate([np.arange(half - CODE // 2, half), np.arange(head_dim - CODE // 2, head_dim)])
    token = codes()
    rope_theta = (max_context / SLOW_TURN) ** 2

    def projection(heads: int) -> NDArray[np.float32]:
        return np.zeros((heads, head_dim, HIDDEN), np.float32)

    def rms(codes_held: int) -> float:
        return float(np.sqrt((1 + codes_held * CODE) / HIDDEN))

    tensors = {"model.norm.weight": np.ones(HIDDEN, np.float32)}
    embed, output = np.zeros((2, VOCAB, HIDDEN), np.float32)
    embed[:, CONSTANT], embed[:, TOKEN], output[:, COPY] = 1, token, token
    tensors |= {"model.embed_tokens.weight": embed, "lm_head.weight": output}
    for layer, into in enumerate((NOTE, COPY)):
        scale = rms(layer + 1)  # undoes the norm before the projections
        query, key, value = projection(n_heads), projection(n_kv_heads), projection(n_kv_heads)
        if layer == 0:
            # The query's pairs are turned back by one position: the score sums up cos((i - j - 1) theta).
            f = np.arange(CODE // 2)
            theta = rope_theta ** (-2.0 * f / head_dim)
            size = scale * np.sqrt(NEXT_SCORE * np.sqrt(head_dim))
            key[group, f, CONSTANT] = size
            query[head, f, CONSTANT], query[head, f + half, CONSTANT] = (
                size * np.cos(theta),
                -size * np.sin(theta),
            )
        else:
            size = scale * np.sqrt(MATCH_SCORE * np.sqrt(head_dim))
            query[head, slow, TOKEN], key[group, slow, NOTE] = size * np.eye(CODE), size * np.eye(CODE)
        value[group, :CODE, TOKEN] = scale * np.eye(CODE)
        back = np.zeros((HIDDEN, n_heads, head_dim), np.float32)
        back[into, head, :CODE] = np.eye(CODE)
        name = f"model.layers.{layer}."
        for which, array in (("q", query), ("k", key), ("v", value)):
            tensors[f"{name}self_attn.{which}_proj.weight"] = array.reshape(-1, HIDDEN)
        tensors[f"{name}self_attn.o_proj.weight"] = back.reshape(HIDDEN, -1)
        wide = (INTERMEDIATE, HIDDEN)
        for which, shape in (("gate", wide), ("up", wide), ("down", wide[::-1])):
            tensors[f"{name}mlp.{which}_proj.weight"] = np.zeros(shape, np.float32)
        for which in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{name}{which}.weight"] = np.ones(HIDDEN, np.float32)
    save_file(tensors, directory / "model.safetensors")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 2,
        "hidden_size": HIDDEN,
        "num_attention_heads": n_heads,
        "num_key_value_heads": n_kv_heads,
        "head_dim": head_dim,
        "intermediate_size": INTERMEDIATE,
        "vocab_size": VOCAB,
        "max_position_embeddings": max_context,
        "rms_norm_eps": 1e-6,
        "rope_theta": rope_theta,
        "torch_dtype": "float32",
    }
    (directory / "config.json").write_text(json.dumps(config))


def needle_prompt(length: int, depth: float, seed: int) -> tuple[list[int], list[int]]:
    """A prompt of `length` tokens, and the value that it asks for.

    At `depth` (0 to 1) of the hay are a key and its value, at the end is the key again; none of their tokens
    occurs in the hay. The first token is hay: it has none before it to note.
    """
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(VOCAB)
    needle, hay = shuffled[: 1 + ANSWER], shuffled[1 + ANSWER :]
    prompt = rng.choice(hay, length)
    at = 1 + int(depth * (length - len(needle) - 2))
    prompt[at : at + len(needle)] = needle
    prompt[-1] = needle[0]
    return prompt.tolist(), needle[1:].tolist()


def answers(driver: EngineDriver, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """ANSWER greedy tokens for each prompt: each prefilled in chunks, then all decoded together."""
    rows = range(len(prompts))
    for row, prompt in enumerate(prompts):
        driver.start(row, prompt)
        step = driver.limits.max_prefill_tokens
        for first in range(0, len(prompt), step):
            driver.prefill([(row, first, min(first + step, len(prompt)))])
    for _ in range(ANSWER - 1):
        driver.decode(list(rows))
    return [driver.tokens[row][len(prompt) :] for row, prompt in enumerate(prompts)]
