"""The keywords of an LLM: the flags of `blink backend`, and some of `blink frontend`, in Python's form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from blink import backend, frontend
from blink.backend_process import BackendProcess
from blink.flags import Flag, arguments, defaults, suggestion
from blink.model_directory import model_directory
from blink.ring_claim import RingClaim
from blink.vllm_flags import instead
from gpu_backend.models.registry import read_model
from gpu_backend.options import BackendOptions, described_model
from nic_frontend.options import FrontendOptions
from ringbuffer.region import ring_path

OF_FRONTEND = ("chat_template", "reasoning_parser", "template_timeout_s", "template_memory_bytes")
FRONTEND_FLAGS = (
    *(flag for flag in frontend.OWN_FLAGS if flag.field == "attach_timeout_s"),
    *(flag for flag in frontend.FLAGS if flag.field in OF_FRONTEND),
)
# What scripts for vLLM say of what has no option here, where it asks for nothing else than what is done.
NEUTRAL = {
    "convert": ("auto", "none"), "data_parallel_size": (1,), "dtype": ("auto",), "enable_lora": (False,),
    "enforce_eager": (False, True), "gpu_memory_utilization": (0.9,), "load_format": ("auto",),
    "logprobs_mode": ("raw_logprobs",), "max_lora_rank": (16,), "pipeline_parallel_size": (1,),
    "runner": ("generate", "auto"), "skip_tokenizer_init": (False,), "swap_space": (4,),
    "task": ("generate", "auto"), "tensor_parallel_size": (1,), "tokenizer_mode": ("auto",),
    "tokenizer_revision": (None,), "trust_remote_code": (False, True),
}  # fmt: skip
TYPES = {"half": "float16", "float": "float32"}  # other names for them that vLLM knows
BACKEND_FLAGS = tuple(flag for flag in backend.FLAGS if flag.field != "model_name")


def chosen(
    model: str | Path,
    ring: str | Path | None,
    revision: str | None,
    start_timeout_s: float,
    given: Mapping[str, Any],
) -> tuple[FrontendOptions, BackendProcess | None]:
    """The frontend, and the backend that is to be started, where no `ring` is given to attach to. `given` are
    the other keywords.

    Raises TypeError for an unknown keyword, ValueError for a wrong value, CommandError where there is no such
    model, and what `described_model` does for one that cannot be served.
    """
    dtype = given.get("dtype")
    asked = _asked({name: value for name, value in given.items() if name != "dtype"})
    for_frontend = {flag.field: asked.pop(flag).value for flag in FRONTEND_FLAGS if flag in asked}
    values = {flag.field: value for flag, (_, value) in asked.items()}
    text = str(model)
    directory = model_directory(text, revision, weights=ring is None)
    process = None
    if dtype not in (None, *NEUTRAL["dtype"]):
        _require_own_type(dtype, read_model(directory).dtype)
    if ring is None:
        described_model(BackendOptions(directory, **values))  # refused before anything is started
        process = BackendProcess(
            directory,
            arguments(values, BACKEND_FLAGS),
            RingClaim("python", "processes that started a backend by LLM(...)"),
            start_timeout_s=start_timeout_s,
            start_option="start_timeout",
        )
    elif asked:
        names = ", ".join(sorted(name for name, _ in asked.values()))
        raise ValueError(f"{names}: give this to the backend that runs, or leave out 'ring'")
    options = FrontendOptions(
        ring=ring_path(str(ring)) if process is None else process.ring,
        model_dir=directory,
        slot_wait_s=None,  # all requests are this process's
        watchdog_s=None,  # nobody else would start this process again
        **for_frontend,
    )
    return options, process


def _require_own_type(asked: Any, own: str) -> None:
    """Raises ValueError where another type is asked for than the checkpoint's, or torch's of that name."""
    name = str(asked).removeprefix("torch.")
    if TYPES.get(name, name) != own:
        raise ValueError(f"dtype={asked!r}: this model is computed in {own}, the type of its checkpoint")


class _Asked(NamedTuple):
    keyword: str
    value: Any


def _asked(given: Mapping[str, Any]) -> dict[Flag, _Asked]:
    """What differs from what is done anyway. Raises TypeError and ValueError."""
    asked: dict[Flag, _Asked] = {}
    for name, value in given.items():
        known_to_vllm = name in NEUTRAL or instead(_written(name)) is not None
        if known_to_vllm and (value is None or value in NEUTRAL.get(name, ())):
            continue
        flag = _flag(name)
        if value is None:
            continue
        found = _value(flag, name, value)
        if found != defaults(_options(flag)).get(flag.field):
            asked[flag] = _Asked(name, found)
    return asked


def _written(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _options(flag: Flag) -> type:
    return FrontendOptions if flag in FRONTEND_FLAGS else BackendOptions


def _flag(name: str) -> Flag:
    """The flag that a keyword stands for: its name or another that it is known by, or what a --no-NAME turns
    off. Raises TypeError.
    """
    written = _written(name)
    flags = (*FRONTEND_FLAGS, *BACKEND_FLAGS)
    for flag in flags:
        if written in (flag.name, *flag.also) or (flag.switch and _turned_off(flag, written)):
            return flag
    hint = instead(written)
    close = suggestion(written, [known for flag in flags for known in (flag.name, *flag.also)])
    told = f": {hint}" if hint else close.replace("--", "").replace("-", "_")
    raise TypeError(f"an LLM has no option {name!r}{told}")


def _turned_off(flag: Flag, written: str) -> bool:
    """Whether the flag is the opposite of what is written."""
    return written.replace("--", "--no-", 1) in (flag.name, *flag.also)


def _value(flag: Flag, name: str, value: Any) -> Any:
    """Raises ValueError where the flag does not take it."""
    if flag.switch:
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, it is {value!r}")
        default = defaults(_options(flag)).get(flag.field, False)
        is_opposite = _turned_off(flag, _written(name))
        return default if value == is_opposite else not default
    try:
        if flag.check is not None:
            path = Path(value).expanduser()
            flag.check(path)
            return path
        text = json.dumps(value) if isinstance(value, dict) else str(value)
        if flag.choices and text not in flag.choices:
            raise ValueError(f"it must be one of {', '.join(flag.choices)}")
        return flag.parse(text)
    except (ValueError, OSError, TypeError) as error:
        raise ValueError(f"{name}={value!r}: {error}") from error
