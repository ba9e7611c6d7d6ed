/* Intake: what the frontends and the backend's host process wrote since the last look. */
#ifndef BLINK_SCHEDULER_INTAKE_H
#define BLINK_SCHEDULER_INTAKE_H

#include "../../ringbuffer/words.h"
#include "arrivals.h"
#include "clock.h"
#include "kv_event_log.h"
#include "life.h"
#include "requests.h"
#include "scan.h"
#include "staging.h"
#include "steps.h"
#include "tables.h"

namespace blink {

// How long a lease's word may stand still: what its frontend asked for, within bounds (R6).
template <class P>
BLINK_FN uint64_t lease_timeout(const P& p, const blink_lease& lease) {
  const uint64_t asked = Max()(p.load(&lease.timeout_ns), uint64_t(BLINK_LEASE_TIMEOUT_NS));
  return Min()(asked, uint64_t(BLINK_LONGEST_LEASE_NS));
}

BLINK_FN constexpr bool are_one_word(uint64_t first, uint64_t second) {
  return first % 8 == 0 && second == first + 4;
}
static_assert(are_one_word(__builtin_offsetof(blink_descriptor, sequence),
                           __builtin_offsetof(blink_descriptor, epoch)));
static_assert(are_one_word(__builtin_offsetof(blink_descriptor, ticket), __builtin_offsetof(blink_descriptor, client)));
static_assert(__builtin_offsetof(blink_descriptor, priority) % 4 == 0);

template <class P>
class Intake : private Tables {
 public:
  BLINK_FN Intake(P& platform, const blink_scheduler_config& config, Steps<P>& steps, Clock<P>& clock,
                  KvEventLog<P>& event_log, Requests<P>& requests, Life<P>& life, Staging<P>& staging)
      : Tables(config),
        p_(platform),
        steps_(steps),
        clock_(clock),
        event_log_(event_log),
        requests_(requests),
        life_(life),
        staging_(staging) {}

  // An execution of the kernel begins: requests of a burst may still be on their way (S14).
  BLINK_FN void start() { settled_at_ = clock_.now(); }
  BLINK_FN bool has_scanned_lately() const { return clock_.now() - last_scan_ < BLINK_STATS_INTERVAL_NS; }

  // So lately that the end of a step need not wait for another scan. A scan with all that follows from it takes some 20
  // us, so a shorter time would let every other turn scan.
  BLINK_FN bool has_just_scanned() const {
    const uint64_t part = Min()(clock_.expected_ns() / BLINK_UNSEEN_SHARE, uint64_t(BLINK_UNSEEN_NS));
    return clock_.now() - last_scan_ < Max()(4 * c_.scan_interval_ns, part);
  }

  // True if the ring had better be looked at again before the next step is planned.
  BLINK_FN bool observe() {
    const bool busy = steps_.in_flight() != 0;
    if (busy && clock_.now() - last_scan_ < c_.scan_interval_ns) return false;
    last_scan_ = clock_.now();
    if (!busy && p_.thread() == 0) ++s_.stats.idle_polls;
    observe_control();
    observe_leases();
    observe_requests();
    if (c_.kv_event_capacity) event_log_.observe_reader();
    if (s_.n_zombies) requests_.reap();
    if (clock_.now() - last_stats_ >= BLINK_STATS_INTERVAL_NS) {
      last_stats_ = clock_.now();
      life_.publish_stats();
    }
    const bool more = staging_.stage_ahead();
    if (busy || !more) settled_at_ = clock_.now();
    return more &&
           clock_.now() - settled_at_ < BLINK_GATHER_NS;  // or requests that are refused could go on for ever (S14)
  }

 private:
  BLINK_FN void observe_control() {
    const uint64_t control = p_.broadcast(p_.thread() == 0 ? p_.acquire(&c_.header->control) : 0);
    if (control == BLINK_CONTROL_RUN || stopping_ || life_.phase() == BLINK_PHASE_FAILED) return;
    life_.drain();
    if (control == BLINK_CONTROL_STOP) {
      stopping_ = true;
      requests_.finish_all(BLINK_REASON_SHUTTING_DOWN);
    }
  }

  // A lease word with a new epoch is a frontend that attached; one that stopped changing is a frontend that is gone.
  // Either way the lease's slots are emptied before anybody may use them again (R6).
  BLINK_FN void observe_leases() {
    uint64_t events = 0;  // grants in the low half, reclaims in the high half
    for (uint32_t i = p_.thread(); i < c_.n_leases; i += p_.threads()) {
      const uint64_t word = p_.acquire(&c_.leases[i].word);
      blink_lease_record& lease = s_.leases[i];
      if (word != lease.word) {
        lease.word = word;
        lease.changed_ns = clock_.now();
      }
      const bool granted = lease.state == BLINK_LEASE_GRANTED;
      if (low(word) != lease.epoch && low(word) != 0) {
        events |= uint64_t(1) << i;
        continue;
      }
      // What it asked for is looked at only after the shortest timeout: another load over the bus for each scan.
      const uint64_t silence = clock_.now() - lease.changed_ns;
      const bool silent = silence > BLINK_LEASE_TIMEOUT_NS && silence > lease_timeout(p_, c_.leases[i]);
      if (granted && (low(word) == 0 || silent)) events |= uint64_t(1) << (32 + i);
    }
    events = p_.reduce(events, Or());
    for (uint32_t i = 0; events && i < c_.n_leases; ++i) {
      const bool grant = events >> i & 1, reclaim = events >> (32 + i) & 1;
      if (!grant && !reclaim) continue;
      reset_slots(i);
      p_.sync();
      if (p_.thread() == 0) {
        blink_lease_record& lease = s_.leases[i];
        if (lease.state == BLINK_LEASE_GRANTED) ++s_.stats.leases_reclaimed;
        if (grant) {
          lease.epoch = low(lease.word);
          lease.ticket = 0;
        }
        lease.state = grant ? BLINK_LEASE_GRANTED : BLINK_LEASE_RECLAIMED;
        p_.release(&c_.lease_acks[i].word, pair_word(lease.epoch, lease.state));
      }
      p_.sync();
    }
  }

  BLINK_FN void reset_slots(uint32_t lease) {
    const uint32_t share = c_.n_slots / c_.n_leases;
    for (uint32_t slot = lease * share + p_.thread(); slot < (lease + 1) * share; slot += p_.threads()) {
      blink_request& r = c_.requests[slot];
      if (open(r)) requests_.finish(slot, BLINK_REASON_CANCELLED);
      c_.seen[slot] = p_.acquire(&c_.request_words[slot]);
      r.submission = low(c_.seen[slot]);
      requests_.vacate(slot);
    }
  }

  // While a scan is under way, a frontend may submit where it has been, and then where it has not. What is older than a
  // submission that was seen is there when that was: a second scan finds it, and it has the same claim (S2).
  BLINK_FN void observe_requests() {
    uint32_t claimed = 0;
    for (uint32_t pass = 0; pass < 2; ++pass) {
      claimed |= scan_requests(pass != 0);
      if (!p_.reduce(claimed, Or())) return;
    }
    for (uint32_t i = p_.thread(); i < c_.n_leases; i += p_.threads()) {
      blink_lease_record& lease = s_.leases[i];
      if (lease.newest) lease.ticket += lease.newest - kNewTicket;
      lease.newest = 0;
    }
    if (p_.thread() == 0) ++s_.claims;
    p_.sync();
  }

  // Takes the words that changed: all of them, or only submissions that are `older` than the newest of their lease in
  // this claim. Nonzero if this thread found a submission.
  BLINK_FN uint32_t scan_requests(bool older) {
    uint32_t claimed = 0;
    scan_words(p_, c_.request_words, c_.seen, c_.n_slots,
               [&](uint32_t slot) { claimed |= on_request_word(slot, older); });
    return claimed;
  }

  // Two words of a descriptor that are one, by one load: each load crosses PCIe when the ring is in host memory.
  BLINK_FN uint64_t load_two(const uint32_t* first) const { return p_.load(reinterpret_cast<const uint64_t*>(first)); }

  // The priority is the first byte of a word. A frontend that writes one without being asked to overtakes nobody.
  BLINK_FN int32_t load_priority(const blink_descriptor& d) const {
    return c_.priorities ? int8_t(p_.load(reinterpret_cast<const uint32_t*>(&d.priority))) : 0;
  }

  // One slot's request word changed; `older` as above. True if it is a new submission. A word that breaks the protocol
  // changes nothing (R3).
  BLINK_FN bool on_request_word(uint32_t slot, bool older) {
    const uint64_t word = p_.acquire(&c_.request_words[slot]);
    blink_request& r = c_.requests[slot];
    blink_lease_record& lease = s_.leases[lease_of(slot)];
    const bool valid = lease.state == BLINK_LEASE_GRANTED && request_epoch(word) == (lease.epoch & BLINK_EPOCH_MASK);
    const uint32_t command = request_command(word);
    // The frontend may cancel or release before the submission was ever seen: the words in between are then skipped.
    const bool fresh = valid && r.state == BLINK_STATE_EMPTY && low(word) == r.submission + 1;
    const bool submitted = fresh && command == BLINK_COMMAND_SUBMIT;
    uint32_t order = 0, client = 0;  // none, also if the payload was overtaken, and nobody knows its ticket (R4)
    int32_t priority = 0;
    if (submitted) {
      const blink_descriptor& d = c_.descriptors[slot];
      const uint64_t whose = load_two(&d.sequence), turn = load_two(&d.ticket);
      const int32_t wanted = load_priority(d);
      if (whose == pair_word(low(word), lease.epoch))
        order = ticket_order(low(turn), lease), client = high(turn), priority = wanted;
    }
    if (older && (order == 0 || order >= lease.newest)) return false;
    c_.seen[slot] = word;
    if (!fresh && !(valid && low(word) == r.submission)) return false;
    if (command < BLINK_COMMAND_SUBMIT || command > BLINK_COMMAND_RELEASE) return false;
    if (fresh) requests_.arrive(r, low(word), lease.epoch);
    if (submitted) {
      if (life_.phase() != BLINK_PHASE_SERVING) {
        requests_.finish(slot,
                         life_.phase() == BLINK_PHASE_FAILED ? BLINK_REASON_ENGINE_FAULT : BLINK_REASON_SHUTTING_DOWN);
        return false;
      }
      if (!older) p_.raise(&lease.newest, order);
      r.arrival = make_arrival(s_.claims + 1, order ? order : kNewTicket, slot);
      r.client = client;
      r.placed = order != 0;
      r.priority = priority;
      requests_.publish(slot);
      return true;
    }
    if ((command == BLINK_COMMAND_CANCEL || command == BLINK_COMMAND_RELEASE) && open(r)) {
      requests_.finish(slot, BLINK_REASON_CANCELLED);
    }
    if (command == BLINK_COMMAND_RELEASE && r.state == BLINK_STATE_DECODE_COMPLETED) requests_.vacate(slot);
    return false;
  }

  P& p_;
  Steps<P>& steps_;
  Clock<P>& clock_;
  KvEventLog<P>& event_log_;
  Requests<P>& requests_;
  Life<P>& life_;
  Staging<P>& staging_;
  // These are the same in every thread.
  uint64_t last_scan_ = 0, last_stats_ = 0;
  uint64_t settled_at_ = 0;  // when a scan last brought nothing to stage, or a step ran
  bool stopping_ = false;
};

}  // namespace blink

#endif
