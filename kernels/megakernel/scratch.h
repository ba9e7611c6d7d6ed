/* Scratch: where the results that the megakernel's blocks pass to each other lie in scratch memory (arguments.h).
 *
 * E10. The data that a block reads from another block shows by itself whether it has been written
 * (../primitives/ll_protocol.h), and nothing else does: there is no grid barrier. Each layer has places of its own for
 * the data, which are zero between kernels. A block has a tile of every matrix, and writes the tile after it has read
 * the matmul's whole input. So a block that has all of a matmul's input knows that no block reads the layer before any
 * more, and clears its share of that layer's places. Requests for weights wait for nothing, and those for the keys of
 * earlier steps only for the predecessor.
 */
#ifndef BLINK_MEGAKERNEL_SCRATCH_H
#define BLINK_MEGAKERNEL_SCRATCH_H

#include "arguments.h"
#include "weight_stream_sm90.h"

#ifdef __CUDACC__

namespace blink {

template <typename Half>
class ScratchLayout {
 public:
  __device__ __forceinline__ explicit ScratchLayout(const struct blink_megakernel_buffers& buffers)
      : buffers_(buffers) {}

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
  __device__ __forceinline__ Half* mlp(uint32_t layer) const { return static_cast<Half*>(at(buffers_.product, layer)); }
  __device__ __forceinline__ float* parts(uint32_t layer) const {
    return static_cast<float*>(at(buffers_.parts, layer));
  }

  /* For the next kernel: this block's share of a layer. */
  __device__ __forceinline__ void clear(uint32_t layer) const {
    clear(layer, buffers_.layer_bytes, blockIdx.x * kMegakernelThreads + threadIdx.x, gridDim.x * kMegakernelThreads);
  }
  /* And all that the head reads. */
  __device__ __forceinline__ void clear_head(uint32_t n_layers) const {
    clear(n_layers, buffers_.norm_bytes, threadIdx.x, kMegakernelThreads);
  }

 private:
  __device__ __forceinline__ void* at(void* first, uint32_t layer, uint32_t norm = 0) const {
    return static_cast<char*>(first) + layer * buffers_.layer_bytes + norm * buffers_.norm_bytes;
  }
  __device__ __forceinline__ void clear(uint32_t layer, uint64_t bytes, uint32_t from, uint32_t step) const {
    uint4* words = static_cast<uint4*>(at(buffers_.squares, layer));
    for (uint32_t e = from; e < bytes / sizeof(uint4); e += step) words[e] = make_uint4(0, 0, 0, 0);
  }

  const struct blink_megakernel_buffers& buffers_;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_MEGAKERNEL_SCRATCH_H */
