/* The scheduler's life: how it begins, goes on in the next execution of its kernel (S8), fails (S10) and ends.
 */
#ifndef BLINK_SCHEDULER_LIFE_H
#define BLINK_SCHEDULER_LIFE_H

#include "clock.h"
#include "pages.h"
#include "requests.h"
#include "steps.h"
#include "tables.h"

namespace blink {

template <class P>
class Life : private Tables {
 public:
  BLINK_FN Life(P& platform, const blink_scheduler_config& config, Steps<P>& steps, Clock<P>& clock, PagePool<P>& pool,
                Requests<P>& requests)
      : Tables(config), p_(platform), steps_(steps), clock_(clock), pool_(pool), requests_(requests) {}

  BLINK_FN uint32_t phase() const { return phase_; }
  // No new request is accepted from now on.
  BLINK_FN void drain() { phase_ = BLINK_PHASE_DRAINING; }

  BLINK_FN bool finished() const {
    if (phase_ == BLINK_PHASE_FAILED) return true;
    return phase_ == BLINK_PHASE_DRAINING && s_.n_active == 0 && s_.n_waiting == 0 && steps_.in_flight() == 0 &&
           !steps_.planned();
  }

  BLINK_FN Exit stop() {
    if (phase_ != BLINK_PHASE_FAILED) phase_ = BLINK_PHASE_STOPPED;
    publish_stats();
    save();
    return Exit::kStopped;
  }

  // The engine cannot go on: every open request is told so, nothing more is launched, and the phase says why (S10). It
  // is the last phase, whatever the control word says, and the first fault is the one that is told.
  BLINK_FN void fail(blink_fault fault, uint64_t detail) {
    if (phase_ == BLINK_PHASE_FAILED) return;
    phase_ = BLINK_PHASE_FAILED;
    if (p_.thread() == 0) {
      s_.fault = fault;
      s_.fault_detail = detail;
      p_.release(&c_.header->fault_detail, detail);
      p_.release(&c_.header->fault, uint64_t(fault));
    }
    requests_.finish_all(BLINK_REASON_ENGINE_FAULT);
  }

  // An execution of the kernel begins where the last one ended, or the scheduler begins.
  BLINK_FN void restore() {
    clock_.restore();
    steps_.restore();
    phase_ = s_.phase == BLINK_PHASE_STARTING ? uint32_t(BLINK_PHASE_SERVING) : s_.phase;
    if (s_.phase == BLINK_PHASE_STARTING) {
      requests_.forget_all();
      pool_.fill();
    }
    p_.sync();
  }

  BLINK_FN void save() {
    p_.sync();
    if (p_.thread() == 0) {
      clock_.save();
      steps_.save();
      s_.phase = phase_;
    }
    p_.sync();
  }

  BLINK_FN void publish_stats() {
    p_.sync();
    if (p_.thread() == 0) {
      s_.stats.running = s_.n_active;
      s_.stats.waiting = s_.n_waiting;
      s_.stats.free_pages = pool_.available();
      s_.stats.cached_pages = pool_.idle();
    }
    p_.sync();
    const uint64_t* from = reinterpret_cast<const uint64_t*>(&s_.stats);
    uint64_t* to = reinterpret_cast<uint64_t*>(&c_.header->stats);
    for (uint32_t i = p_.thread(); i < sizeof(blink_stats) / sizeof(uint64_t); i += p_.threads())
      p_.store(to + i, from[i]);
    if (p_.thread() == 0) {
      p_.store(&c_.header->heartbeat, clock_.now());
      p_.release(&c_.header->phase, uint64_t(phase_));
    }
    p_.sync();  // what is counted next was not yet told
  }

 private:
  P& p_;
  Steps<P>& steps_;
  Clock<P>& clock_;
  PagePool<P>& pool_;
  Requests<P>& requests_;
  uint32_t phase_ = 0;  // enum blink_phase: the same in every thread, and saved in the state across a relaunch
};

}  // namespace blink

#endif
