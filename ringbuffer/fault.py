"""Why a scheduler failed, in words (ring.h, "enum blink_fault")."""

from __future__ import annotations

from collections.abc import Sequence

from ringbuffer.abi import Fault
from ringbuffer.words import member_of

SENTENCES = {
    Fault.NONE: "it gave no reason",
    Fault.LAUNCH: "launching a step was refused with CUDA error {detail}",
    Fault.STEP: "step {detail} did not complete in time",
    Fault.GATE: "step {detail} did not wait for the step before it",
    Fault.RELAUNCH: "launching itself again was refused with CUDA error {detail}",
    Fault.TOKEN: "step {detail} sampled a token outside the vocabulary",
    Fault.DEVICE: "the GPU failed with CUDA error {detail}",
    Fault.PROCESSOR: "a step did not complete in time, because the logits processor {detail} does not end",
}
# The step, or the one before it, may never end, and what it works in cannot be released.
RUNS_ON = (Fault.STEP, Fault.GATE, Fault.PROCESSOR)


def describe(fault: int, detail: int, processors: Sequence[str] = ()) -> str:
    """The sentence of the header's words `fault` and `fault_detail`, whatever they hold. `processors` are the
    names of the logits processors.
    """
    known = member_of(Fault, fault)
    if not isinstance(known, Fault):
        return f"it gave no known reason (fault {fault}, detail {detail})"
    told = f"'{processors[detail]}'" if known is Fault.PROCESSOR and detail < len(processors) else detail
    return f"{SENTENCES[known].format(detail=told)} (fault {known.name})"
