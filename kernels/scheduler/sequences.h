/* What a sequence is about to do, and what it needs for it. */
#ifndef BLINK_SCHEDULER_SEQUENCES_H
#define BLINK_SCHEDULER_SEQUENCES_H

namespace blink {

template <class P>
BLINK_FN bool Scheduler<P>::decoding(const blink_sequence& sequence) const {
  if (sequence.use != BLINK_SEQUENCE_ACTIVE || sequence.fed < sequence.prefill_end) return false;
  const blink_request& r = c.requests[sequence.slot];
  return sequence.fed - r.prompt_tokens + 1 < r.max_outputs;  // feeding position q yields output q + 1 - prompt
}

}  // namespace blink

#endif
