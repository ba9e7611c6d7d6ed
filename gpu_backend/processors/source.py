"""Where logits processors are: the functions that --logits-processor names, and how they are found."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from gpu_backend.processors.called import TooMany, called_by, prints, python_function, raises
from ringbuffer.abi import MAX_PROCESSORS
from ringbuffer.model_file import one_line
from ringbuffer.processors import NAME, NAME_FORM

PARAMETERS = ("token", "logit", "position", "recent", "args")
FORM = "[NAME=]MODULE:FUNCTION, for example ban=my_processors:ban_repeats"

Function = Callable[..., Any]


class ProcessorError(ValueError):
    """A logits processor cannot be used. The message says which, and why."""


@dataclass(frozen=True)
class Source:
    """`module` is one that Python can import, or the path of a file that ends in .py."""

    name: str
    module: str
    function: str

    def __str__(self) -> str:
        """What `parse_sources` reads."""
        return f"{self.name}={self.module}:{self.function}"


def parse_sources(text: str) -> tuple[Source, ...]:
    """Of "my_processors:ban,watermark=/srv/marks.py:green". Raises ValueError."""
    return tuple(_parse(one.strip()) for one in text.split(","))


def _parse(text: str) -> Source:
    name, equals, place = text.rpartition("=")
    module, colon, function = place.rpartition(":")
    if not colon or not module or not function.isidentifier():
        raise ValueError(f"'{one_line(text)}' is no logits processor; write {FORM}")
    name = name if equals else function
    if not NAME.fullmatch(name):
        raise ValueError(f"'{one_line(name)}' is no name of a logits processor, which has {NAME_FORM}")
    return Source(name, module, function)


def check_names(sources: tuple[Source, ...]) -> None:
    """Raises ProcessorError for too many, and for a name that two have."""
    if len(sources) > MAX_PROCESSORS:
        raise ProcessorError(f"--logits-processor names {len(sources)}; there may be {MAX_PROCESSORS}")
    names = [source.name for source in sources]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ProcessorError(
            f"--logits-processor names two '{twice[0]}': give one another name, {FORM.partition(',')[0]}"
        )


def find(source: Source) -> FunctionType:
    """The function. Its module runs when it is imported. Raises ProcessorError."""
    try:
        module = _module(source.module)
    except (Exception, SystemExit) as error:  # whatever somebody else's module raises
        why = f"{type(error).__name__}: {one_line(str(error))}"
        if isinstance(error, SystemExit):
            why = f"it ends the program: {why.rstrip(': ')}"
        raise ProcessorError(
            f"{_whose(source)}: {one_line(source.module)} cannot be imported: {why}"
        ) from error
    found = python_function(getattr(module, source.function, None))
    if not isinstance(found, FunctionType):
        what = "has no such name" if found is None else f"has a {type(found).__name__} of that name"
        raise ProcessorError(f"{_whose(source)}: {one_line(source.module)} {what}, and a function is needed")
    code = found.__code__
    parameters = code.co_varnames[: code.co_argcount]
    if len(parameters) != len(PARAMETERS) or code.co_kwonlyargcount or code.co_flags & _VARIABLE:
        raise ProcessorError(
            f"{_whose(source)}: a logits processor is a function of ({', '.join(PARAMETERS)}), "
            f"and this one of {one_line(str(inspect.signature(found)))}"
        )
    if code.co_flags & _LATER:  # Numba would take the words async and await away
        raise ProcessorError(
            f"{_whose(source)}: it is a coroutine or a generator, and a plain function is needed"
        )
    try:
        for called in called_by(found):
            _check(called, code, source)
    except TooMany as error:
        raise ProcessorError(f"{_whose(source)}: {error}") from None
    return found


def _check(called: CodeType, own: CodeType, source: Source) -> None:
    """Raises ProcessorError where the code of what it calls, or its own, is none for a GPU."""
    who = "it"
    if called is not own:
        place = f"{called.co_filename}:{called.co_firstlineno}"
        who = f"'{one_line(called.co_name)}', which it calls ({one_line(place)}),"
    if raises(called):
        raise ProcessorError(
            f"{_whose(source)}: {who} raises an exception or asserts, and on a GPU nobody could catch that: "
            "return a logit in every case"
        )
    if prints(called):
        raise ProcessorError(
            f"{_whose(source)}: {who} prints, for every token of the vocabulary: leave that out"
        )


_VARIABLE = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_LATER = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


def _whose(source: Source) -> str:
    return f"logits processor '{source.name}' ({one_line(source.module)}:{source.function})"


def _module(name: str) -> ModuleType:
    """A module, or a file. Modules are looked for in the current directory, too, behind everything else."""
    if not name.endswith(".py"):
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.append(here)
        return importlib.import_module(name)
    path = Path(name).resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # Numba looks a function's module up
    spec.loader.exec_module(module)
    return module
