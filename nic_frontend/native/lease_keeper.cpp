#include "nic_frontend/native/lease_keeper.h"

#include <cstddef>

#include "ringbuffer/words.h"

namespace blink {

LeaseKeeper::LeaseKeeper(Link& link, const blink_header& header, const blink_reader_options& options)
    : link_(link),
      lease_offset_(header.leases_offset + options.lease * sizeof(blink_lease)),
      ack_offset_(header.lease_acks_offset + options.lease * sizeof(blink_lease_ack)),
      beat_ns_(options.beat_ns),
      heartbeat_timeout_ns_(options.heartbeat_timeout_ns) {}

void LeaseKeeper::begin(uint32_t epoch, uint32_t beat, uint64_t now) {
  epoch_ = epoch;
  beat_ = beat;
  next_tick_ = 0;
  now_ = heartbeat_changed_ = now;
  link_.read(offsetof(blink_header, phase), live_, 4);
  lost_ = false;
}

bool LeaseKeeper::tick(uint64_t now) {
  next_tick_ = now + beat_ns_;
  now_ = now;
  // The heartbeat is read before its age is judged, so a reader that was itself stopped raises no false
  // alarm.
  const uint64_t before = live_[1];
  if (!link_.read(offsetof(blink_header, phase), live_, 4)) return true;
  if (live_[1] != before) heartbeat_changed_ = now;
  if (lost_) return true;
  bool granted;
  if (!confirm(&granted)) return true;
  if (granted) link_.publish(lease_offset_, pair_word(epoch_, ++beat_));
  return granted;
}

bool LeaseKeeper::confirm(bool* granted) {
  uint64_t ack;
  if (!link_.read(ack_offset_, &ack, 1)) return false;
  *granted = ack == pair_word(epoch_, BLINK_LEASE_GRANTED);
  if (!*granted) lost_ = true;
  return true;
}

void LeaseKeeper::report(blink_health* health) const {
  health->phase = live_[0];
  health->fault = live_[2];
  health->fault_detail = live_[3];
  health->heartbeat_age_ns = now_ - heartbeat_changed_;
  health->heartbeat_lost = health->heartbeat_age_ns > heartbeat_timeout_ns_;
  health->lease_lost = lost_;
}

}  // namespace blink
