"""lm-eval: a task of multiple choice, which compares log-likelihoods, and one that judges what is generated.

The data are local files of a few lines, and the tokenizer is the model's own.
"""

# packages: lm-eval[api] transformers
# model: demo

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from _client import DEMO, V1, versions

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"

from lm_eval import simple_evaluate

FILTERS = ("remove_whitespace", "take_first")
CHOICES = [
    ("What is next after Tuesday?", ["Wednesday", "Monday", "Friday"]),
    ("Question: Name the opposite of fast.\nAnswer:", ["slow", "fast", "green"]),
    ("Q: Add 603 and 7.\nA:", ["610", "601", "67"]),
    ("Q: Sort the numbers 48, 26, 71.\nA:", ["26, 48, 71", "71, 48, 26", "48, 26, 71"]),
]


def task(name: str, lines: list[dict[str, Any]], directory: Path, **config: Any) -> dict[str, Any]:
    """A task over lines of JSON."""
    data = directory / f"{name}.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = {"data_files": {"test": str(data)}, "cache_dir": str(directory / "cache")}
    data_set = {"dataset_path": "json", "dataset_kwargs": files, "test_split": "test"}
    return {"task": name, **data_set, "doc_to_text": "{{question}}", **config}


with tempfile.TemporaryDirectory() as temporary:
    lines = [{"question": question, "choices": choices, "label": 0} for question, choices in CHOICES]
    choice = task(
        "choice", lines, Path(temporary), output_type="multiple_choice",
        doc_to_choice="choices", doc_to_target="label",
        metric_list=[{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    )  # fmt: skip
    generated = task(
        "generated", lines, Path(temporary), output_type="generate_until", doc_to_target="{{choices[0]}}",
        filter_list=[{"name": "text", "filter": [{"function": name} for name in FILTERS]}],
        generation_kwargs={"until": ["\n"], "max_gen_toks": 40, "temperature": 0},
        metric_list=[{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    )  # fmt: skip
    for batch in (1, 4):
        found = simple_evaluate(
            model="local-completions",
            model_args={
                "model": "demo",
                "base_url": f"{V1}/completions",
                "tokenizer_backend": "huggingface",
                "tokenizer": DEMO,
                "num_concurrent": batch,
                "max_length": 1024,
            },
            tasks=[choice, generated],
            bootstrap_iters=0,
            batch_size=batch,
        )
        assert found is not None
        results = found["results"]
        assert results["choice"]["acc,none"] == 1, results
        assert results["generated"]["exact_match,text"] == 1, results
print(versions("lm-eval"))
