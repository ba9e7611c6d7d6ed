/* The scheduler: one loop that batches, schedules, manages KV pages and publishes tokens (paper section 4.2).
 *
 * Written once over a platform (platform.h); every thread of the block runs every line, and a value that decides the
 * control flow is the same in all of them. Read `run` first. Each part is a class in a header of its own, which knows
 * the parts on the floors below and none above (README.md has the floors). README.md numbers the invariants (S1..).
 */
#ifndef BLINK_SCHEDULER_H
#define BLINK_SCHEDULER_H

#include "admission.h"
#include "clients.h"
#include "clock.h"
#include "commit.h"
#include "conclude.h"
#include "copies.h"
#include "drafts.h"
#include "grammar_places.h"
#include "grammars.h"
#include "intake.h"
#include "kv_event_log.h"
#include "kv_events.h"
#include "launch.h"
#include "life.h"
#include "lookup.h"
#include "pages.h"
#include "payload.h"
#include "planner.h"
#include "preemption.h"
#include "prefix.h"
#include "prefix_index.h"
#include "requests.h"
#include "staging.h"
#include "step_times.h"
#include "steps.h"
#include "turns.h"

namespace blink {

template <class P>
class Scheduler {
 public:
  BLINK_FN Scheduler(P& platform, const blink_scheduler_config& config)
      : p_(platform),
        c_(config),
        events_(platform, config),
        index_(platform, config, events_),
        pool_(platform, config, index_),
        steps_(platform, config),
        clients_(platform, config),
        clock_(platform, config, steps_),
        times_(config),
        event_log_(platform, config, steps_, clock_, events_),
        payloads_(platform, config),
        places_(platform, config),
        prefix_(platform, config, steps_, events_, index_, pool_),
        lookup_(platform, config),
        drafts_(platform, config, steps_, lookup_),
        requests_(platform, config, steps_, clock_, clients_, pool_, places_),
        life_(platform, config, steps_, clock_, pool_, requests_),
        turns_(platform, config, clock_, clients_, requests_),
        grammars_(platform, config, payloads_, places_, requests_),
        staging_(platform, config, steps_, clock_, index_, payloads_, requests_, life_, turns_, grammars_),
        commit_(platform, config, steps_, clock_, pool_, drafts_, requests_, life_),
        conclude_(platform, config, steps_, clock_, pool_, prefix_, times_, requests_, life_),
        copies_(platform, config, steps_, index_, pool_, prefix_, turns_),
        launch_(platform, config, steps_, clock_, life_),
        admission_(platform, config, clock_, clients_, pool_, prefix_, requests_, turns_, grammars_, staging_),
        intake_(platform, config, steps_, clock_, event_log_, requests_, life_, staging_),
        preemption_(platform, config, clients_, pool_, prefix_, requests_, turns_, admission_),
        planner_(platform, config, steps_, clock_, times_, pool_, prefix_, drafts_, turns_, copies_, admission_,
                 preemption_) {}

  // Runs until the launch window is used up or the backend says stop. Nothing runs when it returns, but after a fault.
  BLINK_FN Exit run() {
    restore();
    if (steps_.planned()) launch_.launch_planned();
    for (;;) {
      clock_.read();
      payloads_.begin_turn();
      // A scan does not delay a step with drafts, which is planned when the running one has ended (S23). What can be
      // found out before that is.
      const bool awaits = drafts_.await_tokens() && intake_.has_just_scanned();
      const uint64_t completed = p_.broadcast(p_.thread() == 0 ? p_.acquire(c_.tables.completed) : 0);
      if (steps_.window_is_used_up() && completed == steps_.launched()) return launch_.relaunch();
      commit_.take_completions(completed);
      // With the window used up and the next step planned, a relaunch is next, which a scan delays: it crosses PCIe.
      // But the step before may be a long one, and clients wait for the heartbeat and for their cancels (S10).
      const bool relaunching = steps_.planned() && steps_.window_is_used_up() && intake_.has_scanned_lately();
      const bool in_haste = awaits && c_.state->n_active && clock_.plan_is_due() && !clock_.waits_for_company();
      if (!in_haste || conclude_.is_urgent() || life_.finished()) conclude_.conclude();
      const bool settled = relaunching || in_haste || !intake_.observe();
      if (life_.finished()) return life_.stop();
      if (!steps_.planned() && settled && clock_.plan_is_due())
        steps_.has_planned(planner_.plan(steps_.launched() + 1));
      const bool launches = steps_.planned() && !steps_.window_is_used_up();
      if (launches) launch_.launch_planned();
      conclude_.conclude();
      if (!launches && c_.kv_event_capacity) event_log_.tell();
      if (!launches && !in_haste) lookup_.index_ahead();
      clock_.time_turn();
      if (!launches) p_.pause(steps_.in_flight() == 0);
    }
  }

 private:
  BLINK_FN void restore() {
    life_.restore();
    intake_.start();
    conclude_.start();
  }

  P& p_;
  const blink_scheduler_config& c_;

  KvEventQueue<P> events_;
  PrefixIndex<P> index_;
  PagePool<P> pool_;
  Steps<P> steps_;
  Clients<P> clients_;
  Clock<P> clock_;
  StepTimes<P> times_;
  KvEventLog<P> event_log_;
  Payloads<P> payloads_;
  GrammarPlaces<P> places_;
  PrefixCache<P> prefix_;
  Lookup<P> lookup_;
  Drafts<P> drafts_;
  Requests<P> requests_;
  Life<P> life_;
  Turns<P> turns_;
  Grammars<P> grammars_;
  Staging<P> staging_;
  Commit<P> commit_;
  Conclude<P> conclude_;
  Copies<P> copies_;
  Launch<P> launch_;
  Admission<P> admission_;
  Intake<P> intake_;
  Preemption<P> preemption_;
  Planner<P> planner_;
};

}  // namespace blink

#endif
