/* Intake: what the frontends and the backend's host process wrote since the last look. */
#ifndef BLINK_SCHEDULER_INTAKE_H
#define BLINK_SCHEDULER_INTAKE_H

namespace blink {

// True if the ring had better be looked at again before the next step is planned.
template <class P>
BLINK_FN bool Scheduler<P>::observe() {
  const bool busy = in_flight() != 0;
  if (busy && now - last_scan < c.scan_interval_ns) return false;
  last_scan = now;
  if (!busy && tid == 0) ++s.stats.idle_polls;
  observe_control();
  observe_leases();
  observe_requests();
  if (c.kv_event_capacity) observe_event_reader();
  if (s.n_zombies) reap();
  if (now - last_stats >= BLINK_STATS_INTERVAL_NS) {
    last_stats = now;
    publish_stats();
  }
  const bool more = stage_ahead();
  if (busy || !more) settled_at = now;
  return more && now - settled_at < BLINK_GATHER_NS;  // or requests that are refused could go on for ever (S14)
}

template <class P>
BLINK_FN void Scheduler<P>::observe_control() {
  const uint64_t control = broadcast(tid == 0 ? p.acquire(&header.control) : 0);
  if (control == BLINK_CONTROL_RUN || stopping || phase == BLINK_PHASE_FAILED) return;
  phase = BLINK_PHASE_DRAINING;
  if (control == BLINK_CONTROL_STOP) {
    stopping = true;
    finish_all(BLINK_REASON_SHUTTING_DOWN);
  }
}

// How long a lease's word may stand still: what its frontend asked for, within bounds (R6).
template <class P>
BLINK_FN uint64_t lease_timeout(const P& p, const blink_lease& lease) {
  const uint64_t asked = Max()(p.load(&lease.timeout_ns), uint64_t(BLINK_LEASE_TIMEOUT_NS));
  return Min()(asked, uint64_t(BLINK_LONGEST_LEASE_NS));
}

// A lease word with a new epoch is a frontend that attached; one that stopped changing is a frontend that is gone.
// Either way the lease's slots are emptied before anybody may use them again (R6).
template <class P>
BLINK_FN void Scheduler<P>::observe_leases() {
  uint64_t events = 0;  // grants in the low half, reclaims in the high half
  for (uint32_t i = tid; i < c.n_leases; i += threads) {
    const uint64_t word = p.acquire(&c.leases[i].word);
    blink_lease_record& lease = s.leases[i];
    if (word != lease.word) {
      lease.word = word;
      lease.changed_ns = now;
    }
    const bool granted = lease.state == BLINK_LEASE_GRANTED;
    if (low(word) != lease.epoch && low(word) != 0) {
      events |= uint64_t(1) << i;
      continue;
    }
    // What it asked for is looked at only after the shortest timeout: another load over the bus for each scan.
    const uint64_t silence = now - lease.changed_ns;
    const bool silent = silence > BLINK_LEASE_TIMEOUT_NS && silence > lease_timeout(p, c.leases[i]);
    if (granted && (low(word) == 0 || silent)) events |= uint64_t(1) << (32 + i);
  }
  events = p.reduce(events, Or());
  for (uint32_t i = 0; events && i < c.n_leases; ++i) {
    const bool grant = events >> i & 1, reclaim = events >> (32 + i) & 1;
    if (!grant && !reclaim) continue;
    reset_slots(i);
    p.sync();
    if (tid == 0) {
      blink_lease_record& lease = s.leases[i];
      if (lease.state == BLINK_LEASE_GRANTED) ++s.stats.leases_reclaimed;
      if (grant) {
        lease.epoch = low(lease.word);
        lease.ticket = 0;
      }
      lease.state = grant ? BLINK_LEASE_GRANTED : BLINK_LEASE_RECLAIMED;
      p.release(&c.lease_acks[i].word, pair_word(lease.epoch, lease.state));
    }
    p.sync();
  }
}

template <class P>
BLINK_FN void Scheduler<P>::reset_slots(uint32_t lease) {
  const uint32_t share = c.n_slots / c.n_leases;
  for (uint32_t slot = lease * share + tid; slot < (lease + 1) * share; slot += threads) {
    blink_request& r = c.requests[slot];
    if (open(r)) finish(slot, BLINK_REASON_CANCELLED);
    c.seen[slot] = p.acquire(&c.request_words[slot]);
    r.submission = low(c.seen[slot]);
    vacate(slot);
  }
}

// While a scan is under way, a frontend may submit where it has been, and then where it has not. What is older than a
// submission that was seen is there when that was: a second scan finds it, and it has the same claim (S2).
template <class P>
BLINK_FN void Scheduler<P>::observe_requests() {
  uint32_t claimed = 0;
  for (uint32_t pass = 0; pass < 2; ++pass) {
    claimed |= scan_requests(pass != 0);
    if (!p.reduce(claimed, Or())) return;
  }
  for (uint32_t i = tid; i < c.n_leases; i += threads) {
    blink_lease_record& lease = s.leases[i];
    if (lease.newest) lease.ticket += lease.newest - kNewTicket;
    lease.newest = 0;
  }
  if (tid == 0) ++s.claims;
  p.sync();
}

// Scans all words with relaxed loads, several at once, then acquires only the words that changed; of these it takes
// all, or only submissions that are `older` than the newest of their lease in this claim. Nonzero if this thread found
// a submission.
template <class P>
BLINK_FN uint32_t Scheduler<P>::scan_requests(bool older) {
  const uint64_t* words = c.request_words;
  uint32_t claimed = 0;
  for (uint32_t i = 2 * tid; i < c.n_slots; i += 2 * threads) {
    const Pair pair = p.load_pair(words + i);
    for (uint32_t k = 0; k < 2; ++k) {
      if ((k ? pair.second : pair.first) != c.seen[i + k]) claimed |= on_request_word(i + k, older);
    }
  }
  return claimed;
}

BLINK_FN constexpr bool are_one_word(uint64_t first, uint64_t second) {
  return first % 8 == 0 && second == first + 4;
}
static_assert(are_one_word(__builtin_offsetof(blink_descriptor, sequence),
                           __builtin_offsetof(blink_descriptor, epoch)));
static_assert(are_one_word(__builtin_offsetof(blink_descriptor, ticket), __builtin_offsetof(blink_descriptor, client)));
static_assert(__builtin_offsetof(blink_descriptor, priority) % 4 == 0);

// Two words of a descriptor that are one, by one load: each load crosses PCIe when the ring is in host memory.
template <class P>
BLINK_FN uint64_t Scheduler<P>::load_two(const uint32_t* first) const {
  return p.load(reinterpret_cast<const uint64_t*>(first));
}

// The priority is the first byte of a word. A frontend that writes one without being asked to overtakes nobody.
template <class P>
BLINK_FN int32_t Scheduler<P>::load_priority(const blink_descriptor& d) const {
  return c.priorities ? int8_t(p.load(reinterpret_cast<const uint32_t*>(&d.priority))) : 0;
}

// One slot's request word changed; `older` as above. True if it is a new submission. A word that breaks the protocol
// changes nothing (R3).
template <class P>
BLINK_FN bool Scheduler<P>::on_request_word(uint32_t slot, bool older) {
  const uint64_t word = p.acquire(&c.request_words[slot]);
  blink_request& r = c.requests[slot];
  blink_lease_record& lease = s.leases[lease_of(slot)];
  const bool valid = lease.state == BLINK_LEASE_GRANTED && request_epoch(word) == (lease.epoch & BLINK_EPOCH_MASK);
  const uint32_t command = request_command(word);
  // The frontend may cancel or release before the submission was ever seen: the words in between are then skipped.
  const bool fresh = valid && r.state == BLINK_STATE_EMPTY && low(word) == r.submission + 1;
  const bool submitted = fresh && command == BLINK_COMMAND_SUBMIT;
  uint32_t order = 0, client = 0;  // none, also if the payload was overtaken, and nobody knows its ticket (R4)
  int32_t priority = 0;
  if (submitted) {
    const blink_descriptor& d = c.descriptors[slot];
    const uint64_t whose = load_two(&d.sequence), turn = load_two(&d.ticket);
    const int32_t wanted = load_priority(d);
    if (whose == pair_word(low(word), lease.epoch))
      order = ticket_order(low(turn), lease), client = high(turn), priority = wanted;
  }
  if (older && (order == 0 || order >= lease.newest)) return false;
  c.seen[slot] = word;
  if (!fresh && !(valid && low(word) == r.submission)) return false;
  if (command < BLINK_COMMAND_SUBMIT || command > BLINK_COMMAND_RELEASE) return false;
  if (fresh) arrive(r, low(word), lease.epoch);
  if (submitted) {
    if (phase != BLINK_PHASE_SERVING) {
      finish(slot, phase == BLINK_PHASE_FAILED ? BLINK_REASON_ENGINE_FAULT : BLINK_REASON_SHUTTING_DOWN);
      return false;
    }
    if (!older) p.raise(&lease.newest, order);
    r.arrival = make_arrival(s.claims + 1, order ? order : kNewTicket, slot);
    r.client = client;
    r.placed = order != 0;
    r.priority = priority;
    publish(slot);
    return true;
  }
  if ((command == BLINK_COMMAND_CANCEL || command == BLINK_COMMAND_RELEASE) && open(r)) {
    finish(slot, BLINK_REASON_CANCELLED);
  }
  if (command == BLINK_COMMAND_RELEASE && r.state == BLINK_STATE_DECODE_COMPLETED) vacate(slot);
  return false;
}

}  // namespace blink

#endif
