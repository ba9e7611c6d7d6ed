/* The steps: which are launched and committed (S4), whether the next one is planned, and what their sets say. */
#ifndef BLINK_SCHEDULER_STEPS_H
#define BLINK_SCHEDULER_STEPS_H

#include "platform.h"
#include "terms.h"

namespace blink {

template <class P>
class Steps {
 public:
  BLINK_FN Steps(P& platform, const blink_scheduler_config& config) : p_(platform), c_(config), s_(*config.state) {}

  // The id of the step that was launched last.
  BLINK_FN uint64_t launched() const { return launched_; }
  BLINK_FN uint64_t committed() const { return committed_; }
  BLINK_FN uint64_t in_flight() const { return launched_ - committed_; }
  BLINK_FN uint32_t last_kind() const { return last_kind_; }
  // Whether step launched() + 1 is in its set, to be launched by this execution or the next.
  BLINK_FN bool planned() const { return planned_; }
  // Whether this execution has made all the launches that it may (S8).
  BLINK_FN bool window_is_used_up() const { return window_ == p_.launch_window(); }
  // Whether a step in flight checks drafts: how far its sequences get is not known before it is committed.
  BLINK_FN bool verifies() const { return in_flight() && set_of(launched_).head->has_drafts; }
  BLINK_FN const blink_step_set& set_of(uint64_t id) const { return c_.sets[id % p_.step_sets()]; }

  BLINK_FN void has_planned(bool planned) { planned_ = planned; }
  BLINK_FN void has_launched(uint64_t id, uint32_t kind) {
    launched_ = id;
    last_kind_ = kind;
    planned_ = false;
    ++window_;
  }
  // The results of the oldest step in flight are taken from now on. Returns its id.
  BLINK_FN uint64_t commit_next() { return ++committed_; }

  // Writes the head of step `id`, and its padding.
  BLINK_FN void describe(uint64_t id, uint32_t kind, uint32_t shape, uint32_t n_decode, bool has_drafts,
                         StepLoad load) {
    const blink_step_set& set = set_of(id);
    BLINK_ROLLED
    for (uint32_t i = load.tokens + p_.thread(); i < c_.shapes[shape].tokens; i += p_.threads())
      set.token_sequence[i] = BLINK_NO_SEQUENCE;
    if (p_.thread() == 0) {
      blink_step_head& head = *set.head;
      head.id = id;
      head.kind = kind;
      head.shape = shape;
      head.n_tokens = load.tokens;
      head.batch_size = load.batch_slots;
      head.n_decode = n_decode;
      head.has_drafts = has_drafts;
      head.work = load.work;
      head.fault = 0;
    }
    p_.sync();
  }

  BLINK_FN void restore() {
    launched_ = s_.launched;
    committed_ = s_.committed;
    last_kind_ = s_.last_kind;
    planned_ = s_.planned;
  }
  // One thread calls this.
  BLINK_FN void save() const {
    s_.launched = launched_;
    s_.committed = committed_;
    s_.last_kind = last_kind_;
    s_.planned = planned_;
  }

 private:
  P& p_;
  const blink_scheduler_config& c_;
  blink_scheduler_state& s_;

  // These are the same in every thread. All but the window are saved in the state across a relaunch.
  uint64_t launched_ = 0, committed_ = 0;
  uint32_t last_kind_ = 0;
  uint32_t window_ = 0;  // the number of launches that this execution has made
  bool planned_ = false;
};

}  // namespace blink

#endif
