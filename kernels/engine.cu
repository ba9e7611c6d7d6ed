/* The CUDA engine's module: the ops' kernels, which the host names when it compiles
 * ("blink::embed_kernel<__half>"), and the filler of random weights. Compiled by gpu_backend/cuda/compile.py;
 * by hand: nvcc -arch=sm_90a -std=c++17 -c kernels/engine.cu
 */
#include "decoder/decoder.h"
#include "ops/activation.h"
#include "ops/add_norm.h"
#include "ops/attention.h"
#include "ops/embed.h"
#include "ops/expert_one.h"
#include "ops/expert_plan.h"
#include "ops/expert_sum.h"
#include "ops/experts.h"
#include "ops/experts_tiled.h"
#include "ops/gate.h"
#include "ops/gather.h"
#include "ops/linear_held.h"
#include "ops/linear_stream.h"
#include "ops/linear_tiled.h"
#include "ops/linear_wide.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/route.h"
#include "ops/router.h"
#include "ops/sample.h"

namespace blink {

/* Random weights for benchmarks of a model's shape: out[i] = mean + std * g, g the sum of four uniforms
 * scaled to variance 1. The value depends on seed and i alone. grid (any), block (any). */
template <typename Half>
__global__ void random_kernel(Half* out, uint64_t n, uint64_t seed, float mean, float std) {
  const uint64_t stride = uint64_t(gridDim.x) * blockDim.x;
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    const uint64_t bits = mix(mix(seed) + i);
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 4; ++k) sum += float((bits >> (16 * k)) & 0xffff);
    from_float(mean + std * (sum / 65535.0f - 2.0f) * 1.7320508f, out + i);
  }
}

}  // namespace blink
