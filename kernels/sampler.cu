/* The module of a sampler with logits processors: relocatable intermediate code, which is linked with what Numba makes
 * of the processors, inlined and optimised across both (gpu_backend/cuda/compile.py). The other kernels of a step are
 * in engine.cu.
 */
#include "kernels/ops/sampling/sample.h"
