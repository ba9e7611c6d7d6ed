"""The demo model: synthetic tasks, tokenizer, model, training and evaluation."""
