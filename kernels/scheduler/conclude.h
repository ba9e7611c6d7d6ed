/* Concluding: what is still to be done about committed steps, and can wait until the next one has been launched.
 * Frontends are shown how far their requests are, pages that are full are linked, times are kept, and the pages of
 * sequences that have ended come back. All of it takes longer than the commit itself, and a step with drafts, which can
 * only be planned after the commit, would begin later by that (S23).
 */
#ifndef BLINK_SCHEDULER_CONCLUDE_H
#define BLINK_SCHEDULER_CONCLUDE_H

#include "clock.h"
#include "life.h"
#include "pages.h"
#include "prefix.h"
#include "requests.h"
#include "step_times.h"
#include "steps.h"
#include "tables.h"

namespace blink {

template <class P>
class Conclude : private Tables {
 public:
  BLINK_FN Conclude(P& platform, const blink_scheduler_config& config, Steps<P>& steps, Clock<P>& clock,
                    PagePool<P>& pool, PrefixCache<P>& prefix, StepTimes<P>& times, Requests<P>& requests,
                    Life<P>& life)
      : Tables(config),
        p_(platform),
        steps_(steps),
        clock_(clock),
        pool_(pool),
        prefix_(prefix),
        times_(times),
        requests_(requests),
        life_(life) {}

  // An execution of the kernel begins: the one before has concluded everything.
  BLINK_FN void start() { concluded_ = steps_.committed(); }

  // Whether the next plan might do more than go on with the requests in the batch, for which everything has to be
  // concluded: requests wait, or so few pages are left that one of the next step's tokens might find none.
  BLINK_FN bool is_urgent() const { return s_.n_waiting || pool_.available() < t_.n_sequences + c_.max_verify_rows; }

  // Concludes all committed steps. Once the engine has failed, frontends are shown what has become of their requests,
  // and nothing else is done.
  BLINK_CALLED void conclude() {
    if (concluded_ == steps_.committed()) return;
    uint32_t fills = 0;
    BLINK_ROLLED
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads()) {
      blink_sequence& sequence = c_.sequences[i];
      fills |= prefix_.has_filled(sequence);
      if (!sequence.unshown) continue;
      sequence.unshown = 0;
      requests_.publish(sequence.slot);
    }
    fills = p_.reduce(fills, Or());
    if (life_.phase() == BLINK_PHASE_FAILED) return;
    if (fills) prefix_.link_filled();
    while (concluded_ < steps_.committed()) {
      const blink_step_head& head = *steps_.set_of(++concluded_).head;
      if (p_.thread() == 0) count(head);
    }
    p_.sync();
    if (s_.n_zombies) requests_.reap();
  }

 private:
  BLINK_FN void count(const blink_step_head& head) {
    ++s_.stats.steps;
    s_.stats.decode_steps += head.n_decode > 0;
    s_.stats.prefill_steps += head.batch_size > head.n_decode;
    if (s_.ended_prompts + s_.ended_outputs > BLINK_USUAL_MEMORY) s_.ended_prompts /= 2, s_.ended_outputs /= 2;
    times_.record(head);
    record_gap(head);
    trace(head);
    show(head);
  }

  // A gap counts when the next step was ready: it was planned while this one ran, or in the same turn of the loop that
  // saw it end.
  BLINK_FN void record_gap(const blink_step_head& head) {
    if (s_.last_done_ns && head.start_ns >= s_.last_done_ns) {
      const uint64_t bin = (head.start_ns - s_.last_done_ns) / BLINK_GAP_BIN_NS;
      ++s_.gap_histogram[bin < BLINK_GAP_BINS ? bin : BLINK_GAP_BINS - 1];
    }
    s_.last_done_ns = s_.n_active ? head.done_ns : 0;
  }

  BLINK_FN void trace(const blink_step_head& head) {
    blink_step_trace& trace = c_.trace[head.id % BLINK_TRACE_STEPS];
    trace.start_ns = head.start_ns;
    trace.sample_ns = head.sample_ns;
    trace.done_ns = head.done_ns;
    trace.seen_ns = clock_.now();
    trace.kind = head.kind;
    trace.batch_size = head.batch_size;
    trace.id = head.id;
  }

  // In the ring, for whoever watches.
  BLINK_FN void show(const blink_step_head& head) {
    blink_shown_step& shown = c_.header->steps[head.id % BLINK_SHOWN_STEPS];
    p_.store(&shown.start_ns, head.start_ns);
    p_.store(&shown.done_ns, head.done_ns);
    p_.store(&shown.tokens, pair_word(head.n_tokens - head.n_decode, head.n_decode));
    p_.store(&shown.id, head.id);
  }

  P& p_;
  Steps<P>& steps_;
  Clock<P>& clock_;
  PagePool<P>& pool_;
  PrefixCache<P>& prefix_;
  StepTimes<P>& times_;
  Requests<P>& requests_;
  Life<P>& life_;
  uint64_t concluded_ = 0;  // the last step that is concluded: the same in every thread
};

}  // namespace blink

#endif
