// Keeps a granted lease alive and watches the scheduler: one beat and one look every `beat_ns`.
#ifndef BLINK_FRONTEND_LEASE_KEEPER_H
#define BLINK_FRONTEND_LEASE_KEEPER_H

#include <atomic>

#include "nic_frontend/native/frontend.h"
#include "nic_frontend/native/link.h"

namespace blink {

class LeaseKeeper {
 public:
  LeaseKeeper(Link& link, const blink_header& header, const blink_reader_options& options);

  // Takes over the lease that the scheduler granted for `epoch`, `beat` being the last one written.
  void begin(uint32_t epoch, uint32_t beat, uint64_t now);

  // One beat and one look. Returns false when this look found the lease lost (F4). Neither while the link is
  // down.
  bool tick(uint64_t now);

  // After an interruption, a look alone: whether the lease is still granted, into `granted`; it is lost if not.
  // False when the link is down again.
  bool confirm(bool* granted);

  uint32_t epoch() const { return epoch_; }
  bool lost() const { return lost_; }
  uint64_t next_tick() const { return next_tick_; }
  // Whether the last look found that the scheduler will publish nothing more.
  bool scheduler_ended() const { return live_[0] == BLINK_PHASE_STOPPED || live_[0] == BLINK_PHASE_FAILED; }

  // Fills in what the last look saw.
  void report(blink_health* health) const;

 private:
  Link& link_;
  const uint64_t lease_offset_, ack_offset_, beat_ns_, heartbeat_timeout_ns_;
  std::atomic<bool> lost_{true};  // also read by the event loop
  uint32_t epoch_ = 0, beat_ = 0;
  uint64_t next_tick_ = 0, now_ = 0, heartbeat_changed_ = 0;
  uint64_t live_[4] = {};  // phase, heartbeat, fault, fault_detail
};

}  // namespace blink

#endif  // BLINK_FRONTEND_LEASE_KEEPER_H
