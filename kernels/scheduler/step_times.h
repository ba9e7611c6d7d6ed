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
constexpr float kLeastSpread = 1.0e-4f;  // of steps' work, as a share: with less, sums of floats say nothing
constexpr float kMostWork = 1 << 24;     // tokens: more than any step has

template <class P>
class StepTimes : private Tables {
 public:
  BLINK_FN explicit StepTimes(const blink_scheduler_config& config) : Tables(config) {}

  // A step has run. One thread calls this.
  BLINK_FN void record(const blink_step_head& head) {
    const uint64_t duration = since(head.start_ns, head.done_ns);
    record_shape(head, duration);
    if (head.kind == BLINK_STEP_DECODE) record_decode(duration);
    if (head.kind == BLINK_STEP_MIXED && head.n_decode) record_mixed(head, duration);
  }

  // What a decode step takes lately; 0: none has run.
  BLINK_FN uint64_t decode_ns() const { return s_.decode_ns; }

  // How much a mixed step may compute, in tokens, that takes `ns`; while none has run, what is said to cost little.
  BLINK_FN uint32_t work_within(uint64_t ns) const {
    const blink_mixed_times& m = s_.mixed_times;
    if (m.n == 0) return c_.mixed_share;
    const Line line = fitted();
    const float units = (float(ns) / 1000 - line.first) / line.per_unit;
    return uint32_t(Min()(Max()(units * kWorkUnit, 0.0f), kMostWork));
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

  // A step that stood still for reasons of its own counts as one that took twice as long as was to be expected.
  BLINK_FN void record_mixed(const blink_step_head& head, uint64_t duration) {
    blink_mixed_times& m = s_.mixed_times;
    const float w = float(head.work + c_.shapes[head.shape].tokens - head.n_tokens) / kWorkUnit;
    float t = float(duration) / 1000;
    if (m.n > float(BLINK_FIRST_RUNS)) {
      const Line line = fitted();
      t = Min()(t, 2 * Max()(line.first + line.per_unit * w, t / 16));
    }
    m = {m.n * kKept + 1, m.w * kKept + w, m.ww * kKept + w * w, m.t * kKept + t, m.wt * kKept + w * t};
  }

  // Microseconds of a step without work, and of a unit of work.
  struct Line {
    float first, per_unit;
  };

  // Through what mixed steps took, of which there is one at least, and through a decode step, if one has run. Where all
  // had the same work, it goes through the origin: work then seems to take longer than it does.
  BLINK_FN Line fitted() const {
    const blink_mixed_times& m = s_.mixed_times;
    const float decode = float(s_.decode_ns) / 1000;
    const float n = m.n + float(s_.decode_ns != 0), t = m.t + decode;
    const float spread = n * m.ww - m.w * m.w;
    if (spread < kLeastSpread * n * m.ww) return {0, Max()(m.t / m.w, kLeastUnit)};
    const float per_unit = Max()((n * m.wt - m.w * t) / spread, kLeastUnit);
    return {(t - per_unit * m.w) / n, per_unit};
  }
};

}  // namespace blink

#endif
