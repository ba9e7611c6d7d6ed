"""What a module of logits processors takes from blink (docs/logits-processors.md)."""

from gpu_backend.processors.marks import changes_only_recent

__all__ = ["changes_only_recent"]
