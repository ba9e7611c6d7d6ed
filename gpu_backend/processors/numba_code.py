"""Logits processors compiled by Numba: for the CPU as functions of this process, for a GPU as LTO-IR.

Both are C functions as kernels/ops/sampling/logits_processors.h calls them. The user's function gets its
tokens and numbers as arrays, of sizes that are constants and that it cannot write to: what depends on the
sizes is decided when it is compiled, and one that writes is refused by Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, SimpleNamespace
from typing import Any

from gpu_backend.abi import RECENT_TOKENS
from ringbuffer.abi import PROCESSOR_ARGS

Types = Any  # the module numba.types, or that of numba-cuda, whose types are others


class HostCode:
    """A processor for this process. `address` is that of the C function, valid while this object lives;
    `checked` is the user's function with its indices checked, which raises IndexError where one is wrong.
    """

    def __init__(self, function: FunctionType) -> None:
        from numba import cfunc, njit, types
        from numba.extending import intrinsic
        from numba.np import arrayobj

        options = {"error_model": "numpy"}  # as on a GPU: a division by zero gives infinity
        arguments = _array_signature(types)
        self.checked: Callable[..., Any] = njit([arguments], nogil=True, boundscheck=True, **options)(
            function
        )
        wrapped = _wrapper(njit(**options)(function), intrinsic, types, arrayobj)
        self._compiled = cfunc(_c_signature(types), **options)(wrapped)
        self.address: int = self._compiled.address


def device_code(function: FunctionType, symbol: str, capability: tuple[int, int]) -> bytes:
    """LTO-IR of the C function `symbol`, for GPUs of this compute capability. Needs no GPU.

    Raises what Numba raises for a function that it cannot compile.
    """
    from numba import cuda
    from numba.cuda import types
    from numba.cuda.extending import intrinsic
    from numba.cuda.np import arrayobj

    wrapped = _wrapper(cuda.jit(device=True)(function), intrinsic, types, arrayobj)
    with _capability(capability):
        code, _ = cuda.compile(
            wrapped,
            _c_signature(types),
            device=True,
            abi="c",
            abi_info={"abi_name": symbol},
            cc=capability,
            output="ltoir",
        )
    return bytes(code)


@contextmanager
def _capability(capability: tuple[int, int]) -> Iterator[None]:
    """Numba takes the compute capability of what a function calls from the driver's current device, even
    where it was told another one. There may be no driver here, and a context of Numba's would cost memory.
    """
    from numba.cuda import dispatcher

    current = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = current


def _c_signature(types: Types) -> Any:
    """float(int32_t token, float logit, int32_t position, const int32_t* recent, const float* args)"""
    pointers = types.CPointer(types.int32), types.CPointer(types.float32)
    return types.float32(types.int32, types.float32, types.int32, *pointers)


def _array_signature(types: Types) -> Any:
    """What the user's function is called with."""
    arrays = (types.Array(element, 1, "C", readonly=True) for element in (types.int32, types.float32))
    return (types.int32, types.float32, types.int32, *arrays)


def _wrapper(function: Any, intrinsic: Any, types: Types, arrayobj: Any) -> Callable[..., Any]:
    """The C function around a compiled one. `intrinsic`, `types` and `arrayobj` are of its target."""
    recent_of = _view(intrinsic, types, arrayobj, RECENT_TOKENS)
    args_of = _view(intrinsic, types, arrayobj, PROCESSOR_ARGS)

    def wrapper(token, logit, position, recent, args):  # type: ignore[no-untyped-def]
        return function(token, logit, position, recent_of(recent), args_of(args))

    return wrapper


def _view(intrinsic: Any, types: Types, arrayobj: Any, length: int) -> Any:
    """A function of compiled code: a read-only array of `length` elements at a pointer."""
    from llvmlite import ir

    def view(typing_context, pointer):  # type: ignore[no-untyped-def]
        array = types.Array(pointer.dtype, 1, "C", readonly=True)

        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            made = context.make_array(array)(context, builder)
            size = context.get_abi_sizeof(context.get_data_type(pointer.dtype))
            integer = context.get_value_type(types.intp)
            arrayobj.populate_array(
                made,
                data=arguments[0],
                shape=[ir.Constant(integer, length)],
                strides=[ir.Constant(integer, size)],
                itemsize=ir.Constant(integer, size),
                meminfo=None,
            )
            return made._getvalue()

        return array(pointer), generate

    return intrinsic(view)
