/* Intake: what the frontends and the backend's host process wrote since the last look. */
#ifndef BLINK_SCHEDULER_INTAKE_H
#define BLINK_SCHEDULER_INTAKE_H

namespace blink {

// arrival: claim:39 | order within the claim:13 | slot:12
BLINK_FN inline uint64_t make_arrival(uint64_t claim, uint32_t order, uint32_t slot) {
  return claim << 25 | static_cast<uint64_t>(order) << 12 | slot;
}
BLINK_FN inline uint32_t arrival_slot(uint64_t arrival) {
  return arrival & (BLINK_MAX_SLOTS - 1);
}

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
    } else if (granted && (low(word) == 0 || now - lease.changed_ns > BLINK_LEASE_TIMEOUT_NS)) {
      events |= uint64_t(1) << (32 + i);
    }
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
    r.sequence = low(c.seen[slot]);
    r.state = BLINK_STATE_EMPTY;
    r.generated = 0;
    publish(slot);
  }
}

// Scans wide and relaxed, then acquires only the words that changed.
template <class P>
BLINK_FN void Scheduler<P>::observe_requests() {
  const uint64_t* words = c.request_words;
  const uint64_t claim = s.claims + 1;
  uint32_t claimed = 0, ticket_slot = 0;
  for (uint32_t i = 2 * tid; i < c.n_slots; i += 2 * threads) {
    const Pair pair = p.load_pair(words + i);
    for (uint32_t k = 0; k < 2; ++k) {
      if ((k ? pair.second : pair.first) == c.seen[i + k]) continue;
      if (on_request_word(i + k, claim)) claimed = 1, ticket_slot = i + k;
    }
  }
  if (!p.reduce(claimed, Or())) return;
  if (claimed) {
    const uint32_t lease = ticket_slot / (c.n_slots / c.n_leases);
    p.store(&s.leases[lease].ticket, p.load(&c.descriptors[ticket_slot].ticket));
  }
  if (tid == 0) s.claims = claim;
  p.sync();
}

// One slot's request word changed. True if it is a new submission. A word that breaks the protocol changes nothing
// (R3).
template <class P>
BLINK_FN bool Scheduler<P>::on_request_word(uint32_t slot, uint64_t claim) {
  const uint64_t word = p.acquire(&c.request_words[slot]);
  blink_request& r = c.requests[slot];
  const blink_lease_record& lease = s.leases[slot / (c.n_slots / c.n_leases)];
  c.seen[slot] = word;
  if (lease.state != BLINK_LEASE_GRANTED || request_epoch(word) != (lease.epoch & BLINK_EPOCH_MASK)) return false;

  // The frontend may cancel or release before the submission was ever seen: the words in between are then skipped.
  const bool fresh = r.state == BLINK_STATE_EMPTY && low(word) == r.sequence + 1;
  if (!fresh && low(word) != r.sequence) return false;
  const uint32_t command = request_command(word);
  if (command < BLINK_COMMAND_SUBMIT || command > BLINK_COMMAND_RELEASE) return false;
  if (fresh) {
    r.sequence = low(word);
    r.state = BLINK_STATE_PREFILL_PENDING;
    r.row = BLINK_NO_ROW;
    r.generated = 0;
    r.torn_since_ns = r.torn_last_ns = 0;
    p.add(&s.n_waiting, 1u);
  }
  if (command == BLINK_COMMAND_SUBMIT && fresh) {
    if (phase != BLINK_PHASE_SERVING) {
      finish(slot, BLINK_REASON_SHUTTING_DOWN);
      return false;
    }
    const int32_t ahead = static_cast<int32_t>(p.load(&c.descriptors[slot].ticket) - p.load(&lease.ticket));
    r.arrival = make_arrival(claim, ahead < 0 ? 0 : ahead > 8191 ? 8191 : ahead, slot);
    publish(slot);
    return true;
  }
  if ((command == BLINK_COMMAND_CANCEL || command == BLINK_COMMAND_RELEASE) && open(r)) {
    finish(slot, BLINK_REASON_CANCELLED);
  }
  if (command == BLINK_COMMAND_RELEASE && r.state == BLINK_STATE_DECODE_COMPLETED) {
    r.state = BLINK_STATE_EMPTY;
    r.generated = 0;
    publish(slot);
  }
  return false;
}

template <class P>
BLINK_FN void Scheduler<P>::publish_stats() {
  p.sync();
  if (tid == 0) {
    s.stats.running = s.n_active;
    s.stats.waiting = s.n_waiting;
    s.stats.free_pages = s.n_free_pages;
  }
  p.sync();
  const uint64_t* from = reinterpret_cast<const uint64_t*>(&s.stats);
  uint64_t* to = reinterpret_cast<uint64_t*>(&header.stats);
  for (uint32_t i = tid; i < sizeof(blink_stats) / sizeof(uint64_t); i += threads) p.store(to + i, from[i]);
  if (tid == 0) {
    p.store(&header.heartbeat, now);
    p.release(&header.phase, uint64_t(phase));
  }
}

}  // namespace blink

#endif
