/* The sampler. */
#include "kernels.h"

#include "kernels/ops/sample.h"

extern "C" {

void emulate_sample(const blink_set* set, const struct blink_tables* tables, float* logits, uint32_t lanes,
                    uint32_t blocks) {
  after(logits, kFloat * set->head->n_lanes * tables->vocab_size);
  launch({blocks, lanes}, blink::kSampleThreads, [&] { blink::sample_kernel(*set, *tables, logits); }, kClusters);
}
}
