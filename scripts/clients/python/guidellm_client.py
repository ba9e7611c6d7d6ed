"""guidellm: a benchmark of synthetic prompts, whose requests ask for usage with every event."""

# packages: guidellm
# model: demo

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from _client import DEMO, URL, versions

REQUESTS = 6

with tempfile.TemporaryDirectory() as directory:
    report = Path(directory) / "report.json"
    command = [
        str(Path(sys.executable).parent / "guidellm"), "run",
        "--backend", f"kind=openai_http,target={URL},model=demo",
        "--profile", "kind=concurrent,streams=2",
        "--constraint", f"kind=max_requests,count={REQUESTS}",
        "--tokenizer", f"kind=hf_auto,model={DEMO}",
        "--data", "kind=synthetic_text,prompt_tokens=40,output_tokens=10",
        "--output", f"kind=json,path={report}", "--disable-console",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, text=True)
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (REQUESTS, 0), totals
print(versions("guidellm"))
