"""lm-eval: a task of multiple choice, which compares log-likelihoods, one that judges what is generated, and
one whose answers it begins itself (gen_prefix), where it renders chats and where blink does.

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
CHATS = [  # with the beginning of the answer, and the rest
    ("What is next after Tuesday?", "W", "ednesday"),
    ("Name the opposite of fast.", "sl", "ow"),
    ("Add 603 and 7.", "61", "0"),
    ("Sort the numbers 48, 26, 71.", "26,", "48, 71"),
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
    lines = [{"question": question, "begun": start, "rest": rest} for question, start, rest in CHATS]
    begun = task(
        "begun", lines, Path(temporary), output_type="generate_until",
        gen_prefix="{{begun}}", doc_to_target="{{rest}}",
        filter_list=[{"name": "text", "filter": [{"function": name} for name in FILTERS]}],
        metric_list=[{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    )  # fmt: skip
    # Over chats, the prefix is a last message of the assistant, and nothing tells the server to continue it.
    told = {"continue_final_message": True, "add_generation_prompt": False}
    for model, path, more in (
        ("local-completions", "completions", {}),
        ("local-chat-completions", "chat/completions", told),
    ):
        found = simple_evaluate(
            model=model,
            model_args={
                "model": "demo",
                "base_url": f"{V1}/{path}",
                "tokenizer_backend": "huggingface",
                "tokenizer": DEMO,
                "max_length": 1024,
            },
            tasks=[begun],
            apply_chat_template=True,
            gen_kwargs={"until": ["\n"], "max_gen_toks": 20, "temperature": 0, **more},
            bootstrap_iters=0,
        )
        assert found is not None
        assert found["results"]["begun"]["exact_match,text"] == 1, (model, found["results"], found["samples"])
print(versions("lm-eval"))
