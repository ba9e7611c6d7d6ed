/* Exchange places: where in the exchange lies what the blocks of the decoder tell each other (arguments.h, E10). */
#ifndef BLINK_DECODER_EXCHANGE_PLACES_H
#define BLINK_DECODER_EXCHANGE_PLACES_H

#include "arguments.h"
#include "weight_stream.h"

#ifdef __CUDACC__

namespace blink {

template <typename Half>
class ExchangePlaces {
 public:
  __device__ __forceinline__ explicit ExchangePlaces(const struct blink_decoder_buffers& buffers) : buffers_(buffers) {}

  /* Of the norm-th norm of the step, of which a layer has two. */
  __device__ __forceinline__ float* squares(uint32_t norm) const {
    return static_cast<float*>(at(buffers_.squares, norm / 2, norm % 2));
  }
  __device__ __forceinline__ Half* normed(uint32_t norm) const {
    return static_cast<Half*>(at(buffers_.normed, norm / 2, norm % 2));
  }
  __device__ __forceinline__ Half* qkv(uint32_t layer) const { return static_cast<Half*>(at(buffers_.qkv, layer)); }
  __device__ __forceinline__ Half* attention(uint32_t layer) const {
    return static_cast<Half*>(at(buffers_.attention, layer));
  }
  __device__ __forceinline__ Half* product(uint32_t layer) const {
    return static_cast<Half*>(at(buffers_.product, layer));
  }
  __device__ __forceinline__ float* parts(uint32_t layer) const {
    return static_cast<float*>(at(buffers_.parts, layer));
  }

  /* For the next kernel: this block's share of a layer. */
  __device__ __forceinline__ void clear(uint32_t layer) const {
    clear(layer, buffers_.layer_bytes, blockIdx.x * kDecoderThreads + threadIdx.x, gridDim.x * kDecoderThreads);
  }
  /* And all that the head reads. */
  __device__ __forceinline__ void clear_head(uint32_t n_layers) const {
    clear(n_layers, buffers_.norm_bytes, threadIdx.x, kDecoderThreads);
  }

 private:
  __device__ __forceinline__ void* at(void* first, uint32_t layer, uint32_t norm = 0) const {
    return static_cast<char*>(first) + layer * buffers_.layer_bytes + norm * buffers_.norm_bytes;
  }
  __device__ __forceinline__ void clear(uint32_t layer, uint64_t bytes, uint32_t from, uint32_t step) const {
    uint4* words = static_cast<uint4*>(at(buffers_.squares, layer));
    for (uint32_t e = from; e < bytes / sizeof(uint4); e += step) words[e] = make_uint4(0, 0, 0, 0);
  }

  const struct blink_decoder_buffers& buffers_;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_DECODER_EXCHANGE_PLACES_H */
