/* What the scheduler's parts hand each other while they make a plan.
 */
#ifndef BLINK_SCHEDULER_TERMS_H
#define BLINK_SCHEDULER_TERMS_H

#include "platform.h"

namespace blink {

enum class Exit { kRelaunch, kStopped };

// What a step that is being planned has so far. Its work is in tokens that see no keys (S15).
struct StepLoad {
  uint32_t tokens, batch_slots, work;
};

// The sequences that decode in a step that is being planned, and their tokens, of which they may have drafts.
struct Decoding {
  uint32_t tokens, sequences;
};

// What the prefix cache has for a sequence (prefix.h).
struct PrefixMatch {
  uint32_t pages, idle;  // that are there, and those of them that nobody uses
  uint32_t awaits;       // the next page, if an earlier sequence computes it or host memory has it, or BLINK_NO_PAGE
};

// What a staged request finds of the pages that it needs to join the batch.
struct Room {
  uint32_t all;  // that it needs, beside those that the prefix cache has for it
  bool joins;    // all are there, or so many that it may begin (S15)
  bool whole;
};

// A request's place in the line (S2): by its priority and what its client has and has had, and of those with the same
// by its arrival.
struct Place {
  uint64_t claim, arrival;

  BLINK_FN bool is_before(const Place& other) const {
    return claim < other.claim || (claim == other.claim && arrival < other.arrival);
  }
};

// The prompt under way that a plan is to consider next, or BLINK_NO_SEQUENCE.
struct NextPrompt {
  uint32_t sequence;
  uint32_t rank;    // ~0u where there is none, else by its priority and the prompts of its client that the plan has
                    // considered (turns.h)
  uint32_t others;  // that are still to be considered
};

}  // namespace blink

#endif
