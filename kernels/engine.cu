/* The CUDA engine's module: the ops' kernels, which the host names when it compiles
 * ("blink::embed_kernel<__half>"), and the filler of random weights. Compiled by gpu_backend/cuda/compile.py;
 * by hand: nvcc -arch=sm_90a -std=c++17 -c kernels/engine.cu
 *
 * Every kernel is a template, if only with a parameter that says nothing ("blink::gate_kernel<>"): each instance is
 * compiled by itself, and whatever is no template would be compiled with each of them.
 */
#include "kernels/megakernel/megakernel_sm90.h"
#include "ops/activation.h"
#include "ops/add_norm.h"
#include "kernels/ops/attention/attention.h"
#include "ops/embed.h"
#include "kernels/ops/moe/single_token_codes.h"
#include "kernels/ops/moe/single_token_down.h"
#include "kernels/ops/moe/expert_plan.h"
#include "kernels/ops/moe/combine.h"
#include "kernels/ops/moe/expert_gemv.h"
#include "kernels/ops/moe/grouped_codes_gemm_sm90.h"
#include "kernels/ops/moe/grouped_fp8_gemm_sm90.h"
#include "ops/gate.h"
#include "ops/gather.h"
#include "kernels/ops/gemm/resident_gemv.h"
#include "kernels/ops/gemm/code_gemv_sm90.h"
#include "kernels/ops/gemm/gemv.h"
#include "kernels/ops/gemm/split_sums.h"
#include "kernels/ops/gemm/tiled_fp8_gemm_sm90.h"
#include "kernels/ops/gemm/unpack.h"
#include "kernels/ops/gemm/skinny_gemm_sm90.h"
#include "ops/norm.h"
#include "ops/norm_quantize.h"
#include "ops/page_copy.h"
#include "ops/quantize.h"
#include "ops/quantize_weight.h"
#include "kernels/ops/attention/rope.h"
#include "kernels/ops/moe/routing.h"
#include "kernels/ops/moe/router.h"
#include "kernels/ops/sampling/sample.h"

namespace blink {

/* The sum of four uniforms, scaled to variance 1. It depends on seed and i alone. */
__device__ __forceinline__ float random_number(uint64_t seed, uint64_t i) {
  const uint64_t bits = mix(mix(seed) + i);
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 4; ++k) sum += float((bits >> (16 * k)) & 0xffff);
  return (sum / 65535.0f - 2.0f) * 1.7320508f;
}

/* Random weights for benchmarks of a model's shape. grid (any), block (any). */
template <typename Half>
__global__ void random_kernel(Half* out, uint64_t n, uint64_t seed, float mean, float std) {
  const uint64_t stride = uint64_t(gridDim.x) * blockDim.x;
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    from_float(mean + std * random_number(seed, i), out + i);
  }
}

/* The same in fp8, four elements a word: numbers with mean 0, at most 3.5 times `std`. */
template <typename = void>
__global__ void random_fp8_kernel(uint32_t* out, uint64_t n_words, uint64_t seed, float std) {
  const uint64_t stride = uint64_t(gridDim.x) * blockDim.x;
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n_words; i += stride) {
    float element[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) element[k] = std * random_number(seed, 4 * i + k);
    out[i] = to_e4m3(element[0], element[1], element[2], element[3]);
  }
}

}  // namespace blink
