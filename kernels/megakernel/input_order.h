/* Input order: where the elements of a matmul's input lie in scratch memory.
 *
 * Every block loads the whole input of every matmul from L2, past L1, because other blocks write it meanwhile. For 8
 * tokens that is almost a third of what the block reads of weights in fp8, so no sector may be fetched twice. So the
 * elements lie in the order in which the lanes of a warp load them, [chunk][vector][token][quarter][8]: a quarter of a
 * chunk is a lane's, which loads it as one vector, or as two where the weights are of fp8, and the warp's load of a
 * vector is of 512 consecutive bytes. In rows of x the two vectors of a lane would share a sector, which each of the
 * two loads would fetch.
 */
#ifndef BLINK_MEGAKERNEL_INPUT_ORDER_H
#define BLINK_MEGAKERNEL_INPUT_ORDER_H

#include "kernels/ops/gemm/weight_lanes.h"
#include "arguments.h"

#ifdef __CUDACC__

namespace blink {

/* Of the input of a matrix whose scales have a form. */
template <ScaleForm Form>
struct InputOrder {
  /* The vector (8 elements) that lane 4 token + quarter loads as the `nth` of a chunk. */
  static __device__ __forceinline__ uint32_t vector(uint32_t chunk, uint32_t nth, uint32_t lane) {
    return (chunk * kLaneVectors<Form> + nth) * kLanes + lane;
  }
  /* The element of a token in a column. Eight from a multiple of 8 on are neighbours. */
  static __device__ __forceinline__ uint32_t element(uint32_t token, uint32_t column) {
    const uint32_t chunk = column / kChunkWeights<Form>, quarter = column / kLaneWeights<Form> % 4;
    const uint32_t nth = column / 8 % kLaneVectors<Form>;
    return 8 * vector(chunk, nth, 4 * token + quarter) + column % 8;
  }

 private:
  static constexpr uint32_t kLanes = 4 * BLINK_MEGAKERNEL_TOKENS;
  static_assert(kLanes == 32, "a warp");
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_MEGAKERNEL_INPUT_ORDER_H */
