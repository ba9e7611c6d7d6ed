"""A backend that dies while /dev/shm is full is started again as often as the supervisor was told."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PROGRAM_S
from serve_process import ROOT

# In a mount namespace whose /dev/shm is small. The memory is filled, and the backend of a server killed.
SCRIPT = """
set -eu
mount -t tmpfs -o size=64m tmpfs /dev/shm
"$1" -m blink serve demo --device=cpu --port=0 --slots=16 --threads=1 --backend-restarts=$3 2>"$2" &
server=$!
until grep -q 'ready after' "$2"; do kill -0 $server; sleep 0.1; done
dd if=/dev/zero of=/dev/shm/filled bs=64k 2>/dev/null || true
kill -9 "$(pgrep -P $server -f 'blink backend')"
until [ "$(grep -c 'cannot reserve' "$2")" -ge 2 ]; do kill -0 $server; sleep 0.1; done
[ "$4" = full ] || rm /dev/shm/filled
status=0
if [ "$4" = full ]; then
  wait $server || status=$?
else
  until grep -q 'frontend 0 serves again' "$2"; do kill -0 $server; sleep 0.1; done
  kill $server
  wait $server || status=$?
fi
echo "status $status"
"""


def may_mount() -> bool:
    tried = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/dev/shm"]
    return shutil.which("unshare") is not None and subprocess.run(tried, capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not may_mount(), reason="only root may mount a small /dev/shm")
@pytest.mark.parametrize(("restarts", "then", "status"), [(5, "free", 0), (2, "full", 1)])
def test_a_backend_waits_for_room_in_shared_memory(
    tmp_path: Path, restarts: int, then: str, status: int
) -> None:
    log = tmp_path / "log"
    script = tmp_path / "script"
    script.write_text(SCRIPT)
    command = ["unshare", "-m", "bash", str(script), sys.executable, str(log), str(restarts), then]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.stdout == f"status {status}\n", log.read_text() + done.stderr
    starts = log.read_text().count("starting the backend again")
    assert starts == restarts if then == "full" else 3 <= starts <= restarts
