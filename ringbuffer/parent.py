"""A process that does not outlive the one that started it, however that one ends (prctl(2))."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def ask_for_death_signal(number: signal.Signals = signal.SIGTERM) -> None:
    """It comes when the thread that started this process ends, if it has not yet."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def ends_with(parent: int, number: signal.Signals = signal.SIGTERM) -> bool:
    """Asks for the signal. False: the process `parent`, which started this one, has ended already."""
    ask_for_death_signal(number)
    return os.getppid() == parent
