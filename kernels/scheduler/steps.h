/* The steps: which are in flight (S4), and the set of each. */
#ifndef BLINK_SCHEDULER_STEPS_H
#define BLINK_SCHEDULER_STEPS_H

namespace blink {

// Writes the head of step `id`, and its padding.
template <class P>
BLINK_FN void Scheduler<P>::describe_step(uint64_t id, uint32_t kind, uint32_t shape, uint32_t n_decode,
                                          StepLoad load) {
  const blink_step_set& set = set_of(id);
  for (uint32_t i = load.tokens + tid; i < c.shapes[shape].tokens; i += threads)
    set.token_sequence[i] = BLINK_NO_SEQUENCE;
  if (tid == 0) {
    blink_step_head& head = *set.head;
    head.id = id;
    head.kind = kind;
    head.shape = shape;
    head.n_tokens = load.tokens;
    head.batch_size = load.batch_slots;
    head.n_decode = n_decode;
    head.fault = 0;
  }
  p.sync();
}

}  // namespace blink

#endif
