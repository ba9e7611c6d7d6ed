/* What a sequence is about to do, and what it needs for it: the planner and those below it ask. */
#ifndef BLINK_SCHEDULER_SEQUENCES_H
#define BLINK_SCHEDULER_SEQUENCES_H

#include "tables.h"

namespace blink {

class Sequences : protected Tables {
 protected:
  BLINK_FN explicit Sequences(const blink_scheduler_config& config) : Tables(config) {}

  BLINK_FN bool prefilling(const blink_sequence& sequence) const {
    return sequence.use == BLINK_SEQUENCE_ACTIVE && sequence.fed < sequence.prefill_end;
  }
  BLINK_FN bool decoding(const blink_sequence& sequence) const {
    if (sequence.use != BLINK_SEQUENCE_ACTIVE || sequence.fed < sequence.prefill_end) return false;
    const blink_request& r = c_.requests[sequence.slot];
    return sequence.fed - r.prompt_tokens + 1 < r.max_outputs;  // feeding position q yields output q + 1 - prompt
  }
  // Its last token is on its way: it is planned no more, and its pages come back when its last step is committed.
  BLINK_FN bool ending(const blink_sequence& sequence) const {
    return sequence.use == BLINK_SEQUENCE_ACTIVE && !prefilling(sequence) && !decoding(sequence);
  }
  // Pages that a sequence that decodes needs for its next token, and for the drafts behind it.
  BLINK_FN uint32_t wanted_pages(const blink_sequence& sequence) const {
    const uint32_t pages = (sequence.fed + sequence.n_drafts) / t_.page_size + 1;
    return pages - Min()(pages, sequence.n_pages);
  }
  // Pages that a prompt under way still needs, the first answer's token included.
  BLINK_FN uint32_t owed(const blink_sequence& sequence) const {
    return prefilling(sequence) ? sequence.prefill_end / t_.page_size + 1 - sequence.n_pages : 0;
  }
  // Whether a page lies in host memory.
  BLINK_FN bool in_host(uint32_t page) const { return page != BLINK_NO_PAGE && page >= c_.total_pages; }
};

}  // namespace blink

#endif
