"""Reading config.json: typed values with the defaults of a family, and errors that name the key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringbuffer import model_file
from ringbuffer.model_file import ModelFileError, shown, whole

MAX_SIZE = (1 << 31) - 1  # of anything that is counted: kernels index with 32 bits


class UnsupportedModel(ValueError):
    """No engine here can run the model, or its config.json is not valid. Says what and why."""


class Fields:
    """The keys of one JSON object. A key that is missing or null has the default that a method is given. The
    defaults of a family (`defaulted`) stand in for missing keys alone, as in transformers: a null that is
    there has a meaning of its own, or is refused."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw

    def __contains__(self, key: str) -> bool:
        return self.raw.get(key) is not None

    def defaulted(self, **defaults: Any) -> Fields:
        """The same keys, with `defaults` in place of those that are missing (not of those that are null)."""
        return Fields({**defaults, **self.raw})

    def defaulted_null(self, **defaults: Any) -> Fields:
        """The same keys, with `defaults` in place of those that are there and null."""
        null = {key: value for key, value in defaults.items() if key in self.raw and self.raw[key] is None}
        return Fields({**self.raw, **null})

    def count(self, key: str, default: int | None = None, most: int = MAX_SIZE) -> int:
        """A positive integer of at most `most`. Raises UnsupportedModel where there is neither that nor a
        default."""
        count = self.limit(key, default)
        if count > most:
            raise UnsupportedModel(f"config.json: {key} must be at most {most}, found {shown(count)}")
        return count

    def limit(self, key: str, default: int | None = None) -> int:
        """A positive integer that may be far beyond all sizes, which then limits nothing: the caller compares
        it, and computes nothing with it. Raises UnsupportedModel."""
        value = self._get(key, default)
        count = whole(value)
        if count is None or count < 1:
            raise UnsupportedModel(f"config.json: {key} must be a positive integer, found {shown(value)}")
        return count

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number. Raises UnsupportedModel where there is neither that nor a default."""
        value = self._get(key, default)
        number = _finite(value)
        if number is None:
            raise UnsupportedModel(f"config.json: {key} must be a number, found {shown(value)}")
        return number

    def positive(self, key: str, default: float | None = None) -> float:
        """A finite number above zero. Raises UnsupportedModel."""
        number = self.number(key, default)
        if number <= 0:
            raise UnsupportedModel(f"config.json: {key} must be positive, found {number}")
        return number

    def numbers(self, key: str, length: int) -> tuple[float, ...]:
        """As many positive numbers as `length`. Raises UnsupportedModel."""
        values = self.raw.get(key)
        if not isinstance(values, list) or len(values) != length:
            found = f"{len(values)} values" if isinstance(values, list) else shown(values)
            raise UnsupportedModel(f"config.json: {key} must be a list of {length} numbers, found {found}")
        numbers = [number for value in values if (number := _finite(value)) is not None and number > 0]
        if len(numbers) < length:
            raise UnsupportedModel(f"config.json: {key} must hold positive numbers only")
        return tuple(numbers)

    def flag(self, key: str, default: bool) -> bool:
        """True or false. Raises UnsupportedModel for anything else."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise UnsupportedModel(f"config.json: {key} must be true or false, found {shown(value)}")
        return value

    def text(self, key: str, default: str) -> str:
        """A string. Raises UnsupportedModel for anything else."""
        value = self._get(key, default)
        if not isinstance(value, str):
            raise UnsupportedModel(f"config.json: {key} must be a string, found {shown(value)}")
        return value

    def section(self, key: str) -> Fields:
        """The keys of a nested object; none where it is missing. Raises UnsupportedModel."""
        value = self._get(key, {})
        if not isinstance(value, dict):
            raise UnsupportedModel(f"config.json: {key} must be an object, found {shown(value)}")
        return Fields(value)

    def items(self, key: str) -> list[Any]:
        """A list; empty where it is missing. Raises UnsupportedModel for anything else."""
        value = self._get(key, [])
        if not isinstance(value, list):
            raise UnsupportedModel(f"config.json: {key} must be a list, found {shown(value)}")
        return value

    def only(self, key: str, *neutral: Any) -> None:
        """Refuses an option that changes the arithmetic in a way that no engine implements."""
        if key in self and self.raw[key] not in neutral:
            wanted = " or ".join(repr(value) for value in neutral) or "to be left out"
            raise UnsupportedModel(
                f"config.json: {key}: {shown(self.raw[key])} is not supported, only {wanted}"
            )

    def _get(self, key: str, default: Any) -> Any:
        value = self.raw.get(key)
        return default if value is None else value


def _finite(value: object) -> float | None:
    """The number that a value is; None where it is none, or beyond what floats hold."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:  # of a large integer
        return None
    return number if math.isfinite(number) else None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises FileNotFoundError, UnsupportedModel."""
    try:
        return model_file.read_json(path)
    except ModelFileError as error:
        raise UnsupportedModel(str(error)) from None
