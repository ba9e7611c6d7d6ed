"""How long tests wait before they call something stuck.

Every limit is for a busy machine: it bounds a fault, and no test's verdict depends on it.
"""

from __future__ import annotations

COMPILATION_S = 600.0  # of one source by a C or C++ compiler, sanitizers included
