/* Decode megakernel: one decode step of a dense model from embedding to logits, as one kernel of persistent blocks.
 *
 *     embed, L x [qkv, attention, o + add, gate_up and silu * mul, down + add], head
 *
 * A step of few rows takes as long as reading the weights. With a kernel for each matmul the reading stops wherever one
 * ends; here each warp reads on (weight_stream_sm90.h) while blocks wait for each other's outputs (ll_protocol.h).
 *
 * A block keeps the same tiles of the residual throughout, in registers. A norm costs nothing of its own: a matmul is
 * linear in the scale of its input's row, so the scale can be applied to the output. The block that writes a tile of
 * the residual publishes the tile's sums of squares, and the tile times the norm's weight as halves. A block that reads
 * these adds up the squares while the weights stream, and multiplies the matmul's output by the scale. It is
 * written with the scale of the norm before, which all blocks know and take out again. So its values are small, unless
 * the residual grows by much at once; because of that case half is bfloat16 here: in float16 they might overflow.
 *
 * Maths and CPU references are those of the ops that it is made of: embed.h, norm.h, matmul.h, rope.h, attention.h,
 * activation.h.
 *
 * Up to BLINK_MEGAKERNEL_TOKENS tokens, of which token i is batch slot i of the step; arguments.h has the buffers.
 *
 * E9. All blocks of this kernel are resident at once, so every wait of one block for another ends. The grid leaves a
 * multiprocessor to the scheduler. Each block leaves registers and shared memory for the gate of the next step, which
 * may come onto the same multiprocessor later, or be there already. So the gate's multiprocessor must divide its memory
 * as this kernel needs it, which it does since all steps of a model without experts ask for the same (E23).
 * E11. Sums are added up in a fixed order: chunks of k, then warps, then tiles. The logits of a token depend neither on
 * which block was first nor on the other tokens. Their number decides into how many splits a sequence's
 * keys are divided.
 */
#ifndef BLINK_MEGAKERNEL_H
#define BLINK_MEGAKERNEL_H

#include "consumer_sm90.h"
#include "producer_sm90.h"

#ifdef __CUDACC__

namespace blink {

/* The registers of a thread. A quarter of the multiprocessor has 512 for each lane of its warps, and three warps of a
 * block leave kGateRegisters of them for the next step's gate. One of the three warps requests weights or ends at once,
 * and the two that compute take the registers that it does not need: what does not fit into registers lies in memory,
 * where every access takes as long as an exchange between blocks while weights stream. */
constexpr int kMegakernelRegisters = 160, kProducerRegisters = 64, kConsumerRegisters = 208;
static_assert(kProducerRegisters + 2 * kConsumerRegisters <= 3 * kMegakernelRegisters, "more than there are");

/* grid (resident at once, and no more than the smallest matrix has tiles: E9, E10), block (kMegakernelBlock),
 * sizeof(Megakernel::Shared) of dynamic shared memory. hidden, heads * HeadDim and intermediate are multiples of 256
 * words, the vocabulary of 16; a block has at most kPassTiles tiles of hidden. Cache: the elements of keys and values.
 * Form: of the layers' matrices. */
template <typename Half, int HeadDim, int Group, typename Cache = Half, ScaleForm Form = kUnscaled>
__global__ void __maxnreg__(kMegakernelRegisters)
    megakernel_kernel(const __grid_constant__ struct blink_step_set set,
                      const __grid_constant__ struct blink_tables tables,
                      const __grid_constant__ struct blink_megakernel_model model,
                      const __grid_constant__ struct blink_megakernel_buffers buffers) {
  static_assert(Form != kScaleByBlock, "it scales whole sums");
  using Block = Megakernel<Half, HeadDim, Group, Cache, Form>;
  static_assert(sizeof(typename Block::Shared) <= BLINK_MEGAKERNEL_SHARED_BYTES, "does not fit");
  auto& shared = *reinterpret_cast<typename Block::Shared*>(dynamic_shared());
  shared.pipelines.init();
  if (threadIdx.x < kMegakernelThreads) {
    take_registers<kConsumerRegisters>();
    Block megakernel(model, set, tables, buffers, shared);
    wait_for_predecessor();
    megakernel.run();
  } else {
    keep_registers<kProducerRegisters>();
    if (threadIdx.x >= kMegakernelThreads + kMegakernelWarps) return;
    const uint32_t warp = threadIdx.x - kMegakernelThreads;
    const KvProducer<Cache, HeadDim, Group> keys(model, set, tables, buffers, warp);
    StageProducer<Cache, HeadDim, Group, Form>({model}, keys, shared.pipelines, warp).run();
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_MEGAKERNEL_H */
