"""Faults as sentences."""

from __future__ import annotations

import pytest

from ringbuffer.abi import Fault
from ringbuffer.fault import describe


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
def test_every_fault_has_a_sentence_with_its_name(fault: Fault) -> None:
    said = describe(fault, 719)
    assert f"(fault {fault.name})" in said
    assert ("719" in said) == (fault is not Fault.NONE)


def test_the_detail_says_what_it_is() -> None:
    assert describe(Fault.LAUNCH, 719) == "launching a step was refused with CUDA error 719 (fault LAUNCH)"
    assert describe(Fault.GATE, 12) == "step 12 did not wait for the step before it (fault GATE)"


def test_a_logits_processor_is_named() -> None:
    assert "logits processor 'ban' does not end" in describe(Fault.PROCESSOR, 1, ("mark", "ban"))
    assert "logits processor 2 does" in describe(Fault.PROCESSOR, 2, ("mark", "ban"))
    assert "step 1 " in describe(Fault.STEP, 1, ("mark", "ban"))


def test_a_fault_that_there_is_not_is_told_as_it_is() -> None:
    """Whoever has mapped the ring can write the word."""
    assert describe(99, 5) == "it gave no known reason (fault 99, detail 5)"
