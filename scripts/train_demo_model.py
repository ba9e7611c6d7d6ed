"""Trains the demo model from nothing: tokenizer, corpus, training, evaluation, checkpoint, in one command.

    python scripts/train_demo_model.py                      # one GPU, about six minutes
    python scripts/train_demo_model.py --device cpu --minutes 3 --corpus-tokens 1000000 --items 20

Writes a Hugging Face directory with evaluation.json beside the weights. Needs torch, numpy, tokenizers and
safetensors; where transformers is installed, the result is compared with its LlamaForCausalLM.
"""

import argparse
import dataclasses
import importlib.util
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the workers are the parallelism

import torch
from demo_model import checkpoint, corpus, evaluate, tokenizer, train
from demo_model.model import Config, Llama


def arguments() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description="Train, evaluate and save the demo model.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "models" / "demo")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument(
        "--minutes", type=float, default=4.0, help="training time, without corpus and evaluation"
    )
    parser.add_argument("--corpus-tokens", type=int, default=200_000_000)
    parser.add_argument("--step-tokens", type=int, default=98_304, help="tokens of one optimizer step")
    parser.add_argument("--learning-rate", type=float, default=train.Recipe.learning_rate)
    parser.add_argument("--items", type=int, default=200, help="held-out items per task")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    """Run all the steps, with progress on standard error."""
    args, started = arguments(), time.monotonic()

    def note(text: str) -> None:
        print(f"[{time.monotonic() - started:6.1f} s] {text}", file=sys.stderr, flush=True)

    torch.manual_seed(args.seed)
    config = Config()
    tokens = tokenizer.train_tokenizer(corpus.sample_texts(20_000, args.seed), config.vocab_size)
    note("tokenizer trained")
    buckets = corpus.build(tokens, args.corpus_tokens, args.seed, args.workers)
    rows = ", ".join(f"{len(b.ids)} x {width}" for width, b in zip(corpus.WIDTHS, buckets, strict=True))
    note(f"corpus made: rows x width {rows}")
    device = torch.device(args.device)
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    model = Llama(config, dtype).to(device)
    recipe = train.Recipe(args.minutes, args.step_tokens, args.learning_rate, seed=args.seed)
    parameters = sum(p.numel() for p in model.parameters())
    note(f"training {parameters} parameters for {args.minutes} minutes")
    history = train.train(model, buckets, recipe, args.compile)
    size = checkpoint.save(model, tokens, args.out)
    note(f"saved {args.out} ({size} bytes of weights); evaluating")
    model = checkpoint.load(args.out, dtype, device).to(dtype)
    results = evaluate.evaluate(model, tokens, args.items, args.seed, batch=256)
    report = {
        "recipe": dataclasses.asdict(recipe),
        "corpus_tokens": args.corpus_tokens,
        "parameters": parameters,
        "history": history,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "heldout": {name: dataclasses.asdict(score) for name, score in results.items()},
    }
    (args.out / "evaluation.json").write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    if importlib.util.find_spec("transformers"):
        note(f"largest logit difference from transformers: {checkpoint.verify(args.out):.2e}")
    poor = [name for name, score in results.items() if score.share < 0.95]
    note("every task reaches 95 %" if not poor else f"below 95 %: {', '.join(poor)}")


if __name__ == "__main__":
    main()
