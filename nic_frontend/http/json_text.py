"""Reads JSON that others wrote. What a text holds is counted before anything is made of it (F10)."""

from __future__ import annotations

import codecs
import ctypes
import gc
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from nic_frontend.abi import JsonShape
from nic_frontend.library import library

# An object or member costs up to 0.6 us to read and as much again in each step behind that; a number 0.07 us.
MOST_PARTS = 1 << 16
MOST_TEXTS = 1 << 18  # each costs twice as much as a number
MOST_VALUES = (1 << 20) + (1 << 12)  # a prompt of 2^20 tokens, and all else that its request says
MOST_LENIENT = 1 << 18  # values of what is no strict JSON, which takes three times as long
MOST_DIGITS = 1000  # characters of a number: reading it takes time that grows with their square
MOST_DEPTH = 128  # Python's own readers and writers, and those of the templates' process, take 500 and more


class TooMuch(ValueError):
    """What a text holds more than may be."""


class Shape(NamedTuple):
    parts: int  # objects, arrays and members of objects
    texts: int  # strings, and names of members
    values: int  # one behind each comma
    depth: int
    number: int  # characters of the longest one

    def check(self, parts: int = MOST_PARTS) -> None:
        """Raises TooMuch, with what is too much and how much may be."""
        if self.depth > MOST_DEPTH:
            raise TooMuch(f"nests {self.depth} levels deep, and may nest {MOST_DEPTH}")
        if self.parts > parts:
            raise TooMuch(
                f"has {self.parts} objects, arrays and members of objects in all, and may have {parts}"
            )
        if self.texts > MOST_TEXTS:
            raise TooMuch(f"has {self.texts} texts and names of members in all, and may have {MOST_TEXTS}")
        if self.values > MOST_VALUES:
            raise TooMuch(f"has more than {MOST_VALUES} values in arrays and objects, which is the most")
        if self.number > MOST_DIGITS:
            raise TooMuch(f"has a number of {self.number} characters, and may have such of {MOST_DIGITS}")


def shape_of(text: bytes) -> Shape:
    """Of a text in UTF-8. Python's lock is not held meanwhile."""
    shape = JsonShape()
    library().blink_json_shape(text, len(text), ctypes.byref(shape))
    return Shape(shape.parts, shape.texts, shape.commas, shape.depth, shape.number)


def read_json(text: bytes) -> Any:
    """Raises TooMuch, or another ValueError where it is no JSON in UTF-8."""
    text = text.removeprefix(codecs.BOM_UTF8)
    shape = shape_of(text)
    shape.check()
    gc.disable()  # it would look at what is being built again and again, most of the time of a large text
    try:
        return read_counted(text, shape, text.decode)
    finally:
        gc.enable()


def read_counted(text: bytes, shape: Shape, decoded: Callable[[], str]) -> Any:
    """What a text says whose shape has been checked. Raises ValueError.

    `json` takes up to three times as long as msgspec, and takes what is no strict JSON: NaN, lone surrogates,
    and numbers that are too large for a double.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        python = decoded()
        if shape.values > MOST_LENIENT:
            raise ValueError(f"{error}; beyond {MOST_LENIENT} values it has to be strict JSON") from error
        return json.loads(python)
