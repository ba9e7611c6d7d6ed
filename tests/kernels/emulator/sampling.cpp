/* The sampler. */
#include "kernels.h"

#define BLINK_PROCESSORS(X) X(0) X(1)
#include "kernels/ops/sampling/sample.h"

namespace {

/* What the test has given for the functions that a GPU's sampler is linked with. */
using Processor = float (*)(int32_t token, float logit, int32_t position, const int32_t* recent, const float* args);
Processor processors[2];

}  // namespace

#define BLINK_DEFINE_PROCESSOR(i)                                                                           \
  extern "C" float blink_processor_##i(int32_t token, float logit, int32_t position, const int32_t* recent, \
                                       const float* args) {                                                 \
    return processors[i](token, logit, position, recent, args);                                             \
  }
BLINK_PROCESSORS(BLINK_DEFINE_PROCESSOR)

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
  launch(
      {blocks, batch_slots}, blink::kSampleThreads,
      [&] { blink::sample_kernel<blink::NoProcessors>(*set, *tables, logits, nullptr); }, kClusters);
}

/* `addresses`: of the two processors. */
void emulate_processing_sample(const blink_set* set, const struct blink_tables* tables, float* logits, float* processed,
                               const uint64_t* addresses, uint32_t batch_slots, uint32_t blocks) {
  for (uint32_t i = 0; i < 2; ++i) processors[i] = reinterpret_cast<Processor>(addresses[i]);
  after(logits, kFloat * set->head->batch_size * tables->vocab_size);
  launch(
      {blocks, batch_slots}, blink::kSampleThreads,
      [&] { blink::sample_kernel<blink::LinkedProcessors>(*set, *tables, logits, processed); }, kClusters);
}

void emulate_token_mask(const blink_set* set, const struct blink_tables* tables, uint32_t* allowed,
                        uint32_t batch_slots, uint32_t blocks) {
  launch(
      {blocks, batch_slots}, blink::kSampleThreads, [&] { blink::token_mask_kernel(*set, *tables, allowed); },
      kClusters);
}
}
