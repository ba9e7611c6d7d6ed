"""Makes scripts/demo_model importable, as it is for scripts/train_demo_model.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
