/* The sampler. */
#include "kernels.h"

#include "kernels/ops/sampling/sample.h"

extern "C" {

void emulate_sample(const blink_set* set, const struct blink_tables* tables, float* logits, uint32_t batch_slots,
                    uint32_t blocks) {
  after(logits, kFloat * set->head->batch_size * tables->vocab_size);
  launch({blocks, batch_slots}, blink::kSampleThreads, [&] { blink::sample_kernel(*set, *tables, logits); }, kClusters);
}
}
