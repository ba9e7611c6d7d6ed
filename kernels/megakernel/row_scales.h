/* Row scales: what a norm multiplies a token's row by, 1 / rms, which every block computes from the sums of squares
 * that come with the residual's tiles. They are added up in the order of tiles within a thread, then of threads, then
 * of warps (E11).
 */
#ifndef BLINK_MEGAKERNEL_ROW_SCALES_H
#define BLINK_MEGAKERNEL_ROW_SCALES_H

#include "scratch.h"
#include "kernels/primitives/ll_protocol.h"

#ifdef __CUDACC__

namespace blink {

template <typename Half>
class RowScales {
 public:
  static constexpr uint32_t kTokens = BLINK_MEGAKERNEL_TOKENS;

  /* The sums of squares of the last two norms, for each warp. */
  struct Squares {
    float sum[2][kMegakernelWarps][kTokens];
  };
  /* What a thread has requested of a norm's squares: all of them, up to a hidden size of 5120. */
  struct Words {
    uint32_t word[10];
  };

  __device__ __forceinline__ RowScales(const ScratchLayout<Half>& layout, Squares& squares,
                                       const struct blink_megakernel_model& model)
      : layout_(layout), squares_(squares), model_(model), inverse_hidden_(1.0f / float(model.hidden)) {}

  __device__ __forceinline__ void start(uint32_t n_tokens) { n_tokens_ = n_tokens; }

  __device__ __forceinline__ void request(uint32_t norm, Words& words) const {
    if (threadIdx.x % kTokens >= n_tokens_) return;
#pragma unroll
    for (uint32_t w = 0; w < kWords; ++w)
      if (at(w) < count()) words.word[w] = load_relaxed32(square(norm, at(w)));
  }
  /* The scale is valid after the block's next barrier, until the norm after the next. */
  __device__ __forceinline__ void receive(uint32_t norm, const Words& words) const {
    float sum = 0.0f;
    if (threadIdx.x % kTokens < n_tokens_) {
#pragma unroll
      for (uint32_t w = 0; w < kWords; ++w) {
        if (at(w) >= count()) break;
        sum += __uint_as_float(words.word[w] ? words.word[w] : await_word(square(norm, at(w))));
      }
      for (uint32_t e = at(kWords); e < count(); e += kMegakernelThreads)
        sum += __uint_as_float(await_word(square(norm, e)));
    }
#pragma unroll
    for (uint32_t offset = 16; offset >= kTokens; offset >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    const uint32_t lane = threadIdx.x % 32;
    if (lane < kTokens) squares_.sum[norm % 2][threadIdx.x / 32][lane] = sum;
  }

  __device__ __forceinline__ float scale(uint32_t norm, uint32_t token) const {
    return rsqrtf(mean_square(norm, token));
  }
  /* 1 / scale(). */
  __device__ __forceinline__ float unscale(uint32_t norm, uint32_t token) const {
    const float mean = mean_square(norm, token);
    return mean * rsqrtf(mean);
  }

 private:
  static constexpr uint32_t kWords = sizeof(Words) / sizeof(uint32_t);

  static __device__ __forceinline__ uint32_t at(uint32_t word) { return threadIdx.x + word * kMegakernelThreads; }
  __device__ __forceinline__ uint32_t count() const { return model_.hidden / kGemvRows * kTokens; }
  __device__ __forceinline__ const uint32_t* square(uint32_t norm, uint32_t e) const {
    return reinterpret_cast<const uint32_t*>(layout_.squares(norm)) + e;
  }
  __device__ __forceinline__ float mean_square(uint32_t norm, uint32_t token) const {
    float total = 0.0f;
#pragma unroll
    for (uint32_t w = 0; w < kMegakernelWarps; ++w) total += squares_.sum[norm % 2][w][token];
    return fmaf(total, inverse_hidden_, model_.norm_eps);
  }

  const ScratchLayout<Half> layout_;
  Squares& squares_;
  const struct blink_megakernel_model& model_;
  const float inverse_hidden_;
  uint32_t n_tokens_ = 0;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_MEGAKERNEL_ROW_SCALES_H */
