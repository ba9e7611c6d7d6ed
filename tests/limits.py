"""How long tests wait before they call something stuck, in seconds.

These bound a hang, also on a machine that is busy with other things; no verdict depends on them. A test that
judges how long something takes by the clock says its own bound, and is marked `alone`; what judges the
processor's time, or that something takes at least so long, need not be alone.
"""

from __future__ import annotations

COMPILATION_S = 600.0  # one source by a C or C++ compiler, sanitizers included
PROGRAM_S = 600.0  # a program that runs and ends by itself
START_S = 300.0  # a server, from its start until it answers
WAIT_S = 120.0  # an answer, or an event, that comes within a second on an idle machine
