"""Generated from kernels/ops/moe/single_token_codes.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
FEW_EXPERTS = 4
TOKEN_ROUNDS = 2
CODES_MOST_HIDDEN = 4096
FEW_OUTPUTS = 4
FEW_QUARTERS = 4
FEW_PARTS = 8
FEW_DEPTH = 3
FEW_TILES = 3
CODES_MOST_COLUMNS = 3072
FEW_DOWN_BYTES = 92160
