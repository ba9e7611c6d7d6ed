"""What `blink backend` can be told, and the limits that follow from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from gpu_backend.devices.base import Defaults
from gpu_backend.engines.base import Limits
from gpu_backend.kernel_abi.kv_tile import TILE_KEYS
from gpu_backend.models.description import Model
from gpu_backend.models.quantization import ROUNDINGS
from gpu_backend.models.registry import read_model
from gpu_backend.processors.source import Source
from gpu_backend.rdma.options import RdmaOptions
from gpu_backend.schedulers.base import SchedulerKind
from gpu_backend.speculation import Speculation, speculation
from gpu_backend.weights.checkpoint import Checkpoint
from gpu_backend.weights.key_biases import warn_of_key_biases
from gpu_backend.weights.layout import as_stored
from ringbuffer.abi import MAX_COUNT
from ringbuffer.name import DEFAULT_NAME
from ringbuffer.token_bytes import has_bytes

# Of keys and values: as the checkpoint wants them, else the model's half type; halves; fp8.
KV_CACHE_DTYPES = ("auto", "bf16", "fp8")
SCHEDULING_POLICIES = FCFS, PRIORITY = ("fcfs", "priority")
SMALLEST_PAGE = TILE_KEYS  # decode attention reads so many tokens of a page at once
LEAST_TARGET_MS, MOST_TARGET_MS = 0.1, 60_000  # of the time between two tokens
MOST_WAIT_MS = 1000  # of a step for company


@dataclass(frozen=True)
class BackendOptions:
    """What `blink backend` can be told. Sizes in tokens, rows or bytes as named; None chooses by device."""

    model_dir: Path
    ring: str = DEFAULT_NAME
    transport: str = "shm"  # shm, cuda_ipc
    device: str = "auto"  # auto, gpu, cpu
    gpu: int | None = None  # one that is named is asked for: device gpu
    engine: str = "native"  # a name of gpu_backend.devices.select.ENGINES
    slots: int = 1024
    leases: int = 1
    ring_memory: int | None = None  # bytes of the heaps of prompts and answers
    max_context: int | None = None
    max_batch: int | None = None
    max_prefill_tokens: int | None = None
    kv_memory: int | None = None
    kv_cache_dtype: str = "auto"  # one of KV_CACHE_DTYPES
    host_kv_memory: int | None = None  # of pages that the prefix cache has no room for on the device
    grammar_memory: int = 64 << 20  # of the grammars that answers are held to
    page_size: int = 16
    prefix_cache: bool = True
    scheduling_policy: str = FCFS  # with PRIORITY, requests may have one (S2)
    batch_invariant: bool = False  # answers depend less on what else is served (docs/operations.md)
    speculative_config: Speculation | None = None  # drafts that one step checks; None: none
    simulate_acceptance: tuple[float, ...] | None = None  # ... by chance, for measurements
    simulate_edits: float | None = None  # answers repeat so much of their prompts, likewise
    logits_processors: tuple[Source, ...] = ()  # that requests may ask for
    kv_events: int = 0  # records of the log in the ring; 0: none is kept
    mixed_share: int | None = None
    target_itl: float | None = None  # milliseconds
    min_itl: float | None = None  # milliseconds
    threads: int | None = None
    model_name: str | None = None
    random_weights: bool = False
    quantization: str | None = None  # of linear layers while they are loaded: a name of ROUNDINGS
    scheduler: str = SchedulerKind.GPU
    rdma: RdmaOptions | None = None  # for frontends on other hosts


def described_model(options: BackendOptions, notice: Callable[[str], None] = lambda text: None) -> Model:
    """The model that these options ask for, with the tensors that its weights have. `notice` is told
    where it is not as config.json says, and of keys that a KV cache in fp8 breaks.

    Raises UnsupportedModel, FileNotFoundError, and CheckpointError where a tensor is missing.
    """
    wanted = options.quantization
    model = read_model(options.model_dir, ROUNDINGS[wanted] if wanted else None, notice)
    if options.random_weights:
        return model
    checkpoint = Checkpoint(options.model_dir)
    model = as_stored(model, checkpoint, notice)
    checkpoint.find_all(model)
    if caches_fp8(options.kv_cache_dtype, model) and (warning := warn_of_key_biases(model, checkpoint)):
        notice(warning)
    return model


def wanted_limits(options: BackendOptions, config: Model, defaults: Defaults) -> Limits:
    """Limits before the KV cache is sized (`total_pages` 0), which may cut the context.

    Raises ValueError for what cannot be.
    """
    longest = min(config.max_context, MAX_COUNT)
    context = options.max_context or longest
    if context > longest:
        raise ValueError(f"max-context is {context}: the model takes at most {longest} tokens")
    if context < 2:
        raise ValueError("max-context is 1: a prompt and an answer need at least 2 tokens")
    if options.page_size < SMALLEST_PAGE or options.page_size & (options.page_size - 1):
        raise ValueError(
            f"page-size is {options.page_size}, it must be a power of two from {SMALLEST_PAGE} on"
        )
    batch = options.max_batch or defaults.max_batch
    if not 1 <= batch <= 1024:
        raise ValueError(f"max-batch is {batch}, it must be between 1 and 1024")
    prefill = options.max_prefill_tokens or min(defaults.max_prefill_tokens, -(-context // 16) * 16)
    if prefill < 16 or prefill % 16:
        raise ValueError(f"max-prefill-tokens is {prefill}, it must be a multiple of 16")
    if options.host_kv_memory and options.kv_events:
        raise ValueError(
            "kv-events and host-kv-memory exclude each other: the events do not tell of pages in host memory"
        )
    if options.host_kv_memory is not None:
        if not options.prefix_cache:
            raise ValueError("host-kv-memory holds pages of the prefix cache: leave out --no-prefix-cache")
        if SchedulerKind(options.scheduler).host_driven:
            raise ValueError(
                f"host-kv-memory needs the prefix cache, which {options.scheduler} does not have"
            )
    if options.min_itl and options.min_itl > MOST_WAIT_MS:
        raise ValueError(f"min-itl is {options.min_itl:g}, it must be at most {MOST_WAIT_MS}")
    if options.target_itl and options.min_itl and options.min_itl > options.target_itl:
        raise ValueError(
            f"min-itl is {options.min_itl:g}, it must be at most target-itl, which is {options.target_itl:g}"
        )
    share = options.mixed_share or 0
    if not 0 <= share <= prefill:
        raise ValueError(f"mixed-share is {share}, it must be between 1 and max-prefill-tokens, {prefill}")
    drafts = speculation(options.speculative_config, options.simulate_acceptance, options.simulate_edits)
    if drafts.max_drafts and SchedulerKind(options.scheduler).host_driven:
        raise ValueError(
            f"speculative-config needs the scheduler on the GPU: {options.scheduler} has no drafts"
        )
    return Limits(
        max_batch=batch,
        max_context=context,
        max_prefill_tokens=prefill,
        max_prefill_slots=min(defaults.max_prefill_slots, batch),
        page_size=options.page_size,
        total_pages=0,
        mixed_share=share,
        prefix_cache=options.prefix_cache,
        attention_keys=attention_keys(config),
        target_itl_ns=round((options.target_itl or 0) * 1e6),
        min_itl_ns=round((options.min_itl or 0) * 1e6),
        priorities=options.scheduling_policy == PRIORITY,
        grammar_words=grammar_words(options),
        kv_fp8=caches_fp8(options.kv_cache_dtype, config),
        batch_invariant=options.batch_invariant,
        processors=len(options.logits_processors),
        **asdict(drafts),
    )


def grammar_words(options: BackendOptions) -> int:
    """Words of the memory of grammars; 0 where nobody knows the bytes of the model's tokens."""
    words = options.grammar_memory // 4
    return words if words and has_bytes(options.model_dir) else 0


def caches_fp8(wanted: str, config: Model) -> bool:
    """Whether keys and values are cached in fp8, where `wanted` is one of KV_CACHE_DTYPES."""
    if wanted not in KV_CACHE_DTYPES:
        raise ValueError(f"kv-cache-dtype is {wanted}, it must be one of {', '.join(KV_CACHE_DTYPES)}")
    made_for_fp8 = config.quantization is not None and config.quantization.kv_cache
    return wanted == "fp8" or (wanted == "auto" and made_for_fp8)


def parse_target(text: str) -> float:
    """Milliseconds. Raises ValueError."""
    try:
        target = float(text)
    except ValueError:
        target = math.nan
    if not LEAST_TARGET_MS <= target <= MOST_TARGET_MS:
        raise ValueError(
            f"'{text:.80}' is not a time between tokens, which is a number of milliseconds from "
            f"{LEAST_TARGET_MS} to {MOST_TARGET_MS}"
        )
    return target


def attention_keys(config: Model) -> int:
    """How many keys make a prompt's token cost twice what its matmuls cost, by operations; 0: no number does,
    because every layer has a window."""
    matmuls = 2 * sum(layer.multiplied_elements(config.experts) for layer in config.layers)
    unbounded = sum(layer.window is None for layer in config.layers)
    return int(matmuls / (4 * config.attention_width * unbounded)) if unbounded else 0
