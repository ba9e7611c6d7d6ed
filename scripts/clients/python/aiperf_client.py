"""aiperf: benchmarks of synthetic prompts over chats and completions, streamed."""

# packages: aiperf
# model: demo

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from _client import DEMO, URL, versions

REQUESTS, TOKENS = 6, 10

for endpoint in ("chat", "completions"):
    with tempfile.TemporaryDirectory() as directory:
        command = [
            str(Path(sys.executable).parent / "aiperf"), "profile",
            "--model", "demo", "--url", URL, "--endpoint-type", endpoint, "--streaming",
            "--tokenizer", DEMO, "--request-count", str(REQUESTS), "--concurrency", "2",
            "--synthetic-input-tokens-mean", "40", "--output-tokens-mean", str(TOKENS),
            "--extra-inputs", "ignore_eos:true",  # an answer without text counts as an error
            "--ui", "none", "--artifact-dir", directory,
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, text=True)
        (report,) = Path(directory).rglob("profile_export_aiperf.json")
        found = json.loads(report.read_text())
        assert found["request_count"]["avg"] == REQUESTS, found["request_count"]
        assert not found.get("error_request_count"), found
        assert found["time_to_first_token"]["avg"] > 0
print(versions("aiperf"))
