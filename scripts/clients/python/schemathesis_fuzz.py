"""schemathesis: requests made of /openapi.json, good and bad. No server error, and no status, media type or
answer that the document does not have.
"""

# packages: schemathesis

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from _client import URL, versions

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
program = Path(sys.executable).parent / "schemathesis"
arguments = [
    f"{URL}/openapi.json",
    f"--checks={CHECKS}",
    "--phases=examples,coverage,fuzzing",
    "--max-examples=60",
]
arguments += ["--seed=1", "--generation-allow-x00=false", "--suppress-health-check=all", "--no-color"]
with tempfile.TemporaryDirectory() as directory:  # it remembers what it found where it runs
    ended = subprocess.run(
        [program, "run", *arguments], cwd=directory, capture_output=True, text=True, check=False
    )
if ended.returncode != 0:
    print(ended.stdout[-12000:], ended.stderr[-3000:])
    sys.exit(1)
print(versions("schemathesis"))
