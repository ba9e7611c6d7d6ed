/* What steps take: of each shape, of decode steps lately, and of mixed steps by how much they compute.
 *
 * The time of a mixed step is taken to be a line over its work: the tokens of its shape, and as many more as its prompt
 * tokens' keys count for (S15). The line is fitted to the last mixed steps, of which each counts for 31/32 of the one
 * behind it, and to the last decode steps, which have no work of prompts. So one mixed step is enough for a first
 * guess, and where steps of one size follow each other, the line goes through what they took.
 */
#ifndef BLINK_SCHEDULER_STEP_TIMES_H
#define BLINK_SCHEDULER_STEP_TIMES_H

#include "clock.h"
#include "tables.h"

namespace blink {

constexpr uint64_t kMostGapNs = 200000;  // that a step's own time includes: more is not its shape's doing
constexpr float kKept = 31.0f / 32;      // of what a mixed step counts for, when the next one has run
constexpr float kWorkUnit = 1024;        // tokens
constexpr float kLeastUnit = 1.0e-3f;    // microseconds that such a unit takes at least
constexpr float kLeastSpread = 1.0e-6f;  // of steps' work, without which there is no line through them

template <class P>
class StepTimes : private Tables {
 public:
  BLINK_FN explicit StepTimes(const blink_scheduler_config& config) : Tables(config) {}

  // A step has run. One thread calls this.
  BLINK_FN void record(const blink_step_head& head) {
    const uint64_t duration = since(head.start_ns, head.done_ns);
    record_shape(head, duration);
    if (head.kind == BLINK_STEP_DECODE) record_decode(duration);
    if (head.kind == BLINK_STEP_MIXED) record_mixed(head, duration);
  }

  // What a decode step takes lately; 0: none has run.
  BLINK_FN uint64_t decode_ns() const { return s_.decode_ns; }

  // How much a mixed step may compute, in tokens, that takes `ns`; as much as there is where nothing is known.
  BLINK_FN uint32_t work_within(uint64_t ns) const {
    const blink_mixed_times& m = s_.mixed_times;
    const float decode = float(s_.decode_ns) / 1000;
    const float n = m.n + float(s_.decode_ns != 0), t = m.t + decode;
    const float spread = n * m.ww - m.w * m.w;
    if (spread < kLeastSpread) return BLINK_MOST_WORK;
    const float per_unit = Max()((n * m.wt - m.w * t) / spread, kLeastUnit);
    const float units = (float(ns) / 1000 - (t - per_unit * m.w) / n) / per_unit;
    return uint32_t(Min()(Max()(units * kWorkUnit, 0.0f), float(BLINK_MOST_WORK)));
  }

 private:
  BLINK_FN void record_shape(const blink_step_head& head, uint64_t duration) {
    blink_shape_time& time = c_.shape_times[head.shape];
    time.expected_ns = duration < time.expected_ns || !time.expected_ns
                           ? duration
                           : time.expected_ns + (duration - time.expected_ns) / 8;
    time.total_ns += duration;
    ++time.steps;
    const uint64_t gap = s_.last_done_ns ? Min()(since(s_.last_done_ns, head.start_ns), kMostGapNs) : 0;
    time.usual_ns = usual_time(time, duration + gap);
    time.last_step = head.id;
  }

  // The first runs of a shape may be slow for reasons of their own, and so may a single later one.
  BLINK_FN static uint64_t usual_time(const blink_shape_time& time, uint64_t period) {
    if (time.steps <= 1) return period;
    if (time.steps <= BLINK_FIRST_RUNS) return Min()(time.usual_ns, period);
    return time.usual_ns - time.usual_ns / 8 + Min()(period, time.usual_ns + time.usual_ns / 4) / 8;
  }

  BLINK_FN void record_decode(uint64_t duration) {
    s_.decode_ns = s_.decode_ns ? s_.decode_ns - s_.decode_ns / 8 + duration / 8 : duration;
  }

  BLINK_FN void record_mixed(const blink_step_head& head, uint64_t duration) {
    blink_mixed_times& m = s_.mixed_times;
    const float t = float(duration) / 1000;
    const float w = float(head.work + c_.shapes[head.shape].tokens - head.n_tokens) / kWorkUnit;
    m = {m.n * kKept + 1, m.w * kKept + w, m.ww * kKept + w * w, m.t * kKept + t, m.wt * kKept + w * t};
  }
};

}  // namespace blink

#endif
