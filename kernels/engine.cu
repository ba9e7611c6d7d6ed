/* The CUDA engine's module: the ops' kernels, which the host names when it compiles
 * ("blink::embed_kernel<__half>"), and the filler of random weights. Compiled by gpu_backend/cuda/compile.py;
 * by hand: nvcc -arch=sm_90a -std=c++17 -c kernels/engine.cu
 */
#include "kernels/megakernel/megakernel_sm90.h"
#include "ops/activation.h"
#include "ops/add_norm.h"
#include "kernels/ops/attention/attention.h"
#include "ops/embed.h"
#include "kernels/ops/moe/single_token.h"
#include "kernels/ops/moe/expert_plan.h"
#include "kernels/ops/moe/combine.h"
#include "kernels/ops/moe/expert_gemv.h"
#include "kernels/ops/moe/grouped_gemm_sm90.h"
#include "ops/gate.h"
#include "ops/gather.h"
#include "kernels/ops/gemm/resident_gemv.h"
#include "kernels/ops/gemm/gemv.h"
#include "kernels/ops/gemm/tiled_fp8_gemm_sm90.h"
#include "kernels/ops/gemm/skinny_gemm_sm90.h"
#include "ops/norm.h"
#include "ops/norm_quantize.h"
#include "ops/page_copy.h"
#include "ops/quantize.h"
#include "kernels/ops/attention/rope.h"
#include "kernels/ops/moe/routing.h"
#include "kernels/ops/moe/router.h"
#include "kernels/ops/sampling/sample.h"

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
