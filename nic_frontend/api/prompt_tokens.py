"""The tokens of a prompt as it was rendered: of a text, or of pieces of which some are tokens already."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from nic_frontend.templates.renderer import Rendered
from nic_frontend.text.tokenizer import Tokenizer

# Within the texts of special tokens, such as <|end|>, where other tokens end: behind marks, a word begins.
INSIDE_MARKS = re.compile(r"(?<=<\|)(?=[a-zA-Z])")


async def tokens_of(
    rendered: Rendered, conclusion: str, tokenizer: Tokenizer, *, special: bool, param: str
) -> NDArray[np.uint32]:
    """`conclusion`: a text behind it, which may have special tokens. `special`: a text gets the model's begin
    and end tokens. Raises ApiError 400 naming `param`.
    """
    if isinstance(rendered, str):
        (tokens,) = await tokenizer.encode([rendered + conclusion], special=special, param=param)
        return tokens
    texts = [part for piece in rendered if isinstance(piece, str) for part in INSIDE_MARKS.split(piece)]
    encoded = iter(await tokenizer.encode([*texts, conclusion], special=False, param=param))
    arrays: list[NDArray[np.uint32]] = []
    for piece in rendered:
        if isinstance(piece, str):
            arrays += (next(encoded) for _ in INSIDE_MARKS.split(piece))
        else:
            arrays.append(np.array(piece, np.uint32))
    return np.concatenate([*arrays, next(encoded)])
