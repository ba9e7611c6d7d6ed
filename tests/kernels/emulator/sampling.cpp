/* The sampler. */
#include "kernels.h"

#include "kernels/ops/sampling/sample.h"

namespace blink {

/* A word for each token of the vocabulary: whether the batch slot's grammar allows it. All of them have one. */
inline void token_mask_kernel(const struct blink_step_set& set, const struct blink_tables& tables, uint32_t* allowed) {
  SampleScratch& scratch = *reinterpret_cast<SampleScratch*>(dynamic_shared());
  const uint32_t batch_slot = blockIdx.y;
  const Sequence sequence = sequence_of(set, tables, batch_slot);
  const SampleSlice slice(tables.vocab_size);
  uint32_t* bits = dynamic_shared() + kSampleSharedBytes / sizeof(uint32_t);
  MaskWork& work = *reinterpret_cast<MaskWork*>(scratch.select.received);
  TokenMask(sequence, tables, slice, scratch.mask, work, bits).make(batch_slot >= set.head->n_decode);
  wait_for_predecessor();
  for (uint32_t t = slice.block_begin() + threadIdx.x; t < slice.block_end(); t += kSampleThreads)
    allowed[batch_slot * tables.vocab_size + t] = bits[(t - slice.block_begin()) / 32] >> t % 32 & 1;
}

}  // namespace blink

extern "C" {

void emulate_sample(const blink_set* set, const struct blink_tables* tables, float* logits, uint32_t batch_slots,
                    uint32_t blocks) {
  after(logits, kFloat * set->head->batch_size * tables->vocab_size);
  launch({blocks, batch_slots}, blink::kSampleThreads, [&] { blink::sample_kernel(*set, *tables, logits); }, kClusters);
}

void emulate_token_mask(const blink_set* set, const struct blink_tables* tables, uint32_t* allowed,
                        uint32_t batch_slots, uint32_t blocks) {
  launch(
      {blocks, batch_slots}, blink::kSampleThreads, [&] { blink::token_mask_kernel(*set, *tables, allowed); },
      kClusters);
}
}
