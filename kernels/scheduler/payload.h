/* A request's payload: its descriptor, its prompt and controls, and behind them what a paused request has answered.
 *
 * It lies in the ring, which anybody may have written, and is read into the sequence's tables on the device. Nothing in
 * it is believed before its checksum has matched (R4).
 */
#ifndef BLINK_SCHEDULER_PAYLOAD_H
#define BLINK_SCHEDULER_PAYLOAD_H

#include "../../ringbuffer/extents.h"
#include "../../ringbuffer/words.h"
#include "crc32c.h"
#include "tables.h"

namespace blink {

constexpr uint32_t kDescriptorWords = sizeof(blink_descriptor) / 4;
constexpr uint32_t kHead = kDescriptorWords - 1;  // words of a payload in front of its prompt: all but the checksum
constexpr uint32_t kGrammarHead = sizeof(blink_grammar) / 4;
constexpr uint32_t kTorn = 0x80000000u;

// What is wrong with a payload part, above its checksum's summand.
constexpr uint32_t kBadPrompt = 1, kBadAnswer = 2;

// Payload parts that many threads read: their checksums' summands below, what is wrong with any above.
struct Findings {
  BLINK_FN uint64_t operator()(uint64_t a, uint64_t b) const { return ((a ^ b) & 0xffffffffu) | ((a | b) >> 32 << 32); }
};

template <class P>
class Payloads : private Tables {
 public:
  BLINK_FN Payloads(P& platform, const blink_scheduler_config& config) : Tables(config), p_(platform) {}

  // A turn of the loop reads only so many words of payloads and grammars (S18).
  BLINK_FN void begin_turn() { readable_words_ = c_.stage_words; }
  BLINK_FN uint32_t readable_words() const { return readable_words_; }
  BLINK_FN void spend(uint32_t words) { readable_words_ -= Min()(readable_words_, words); }

  // Words of a payload whose descriptor is in the sequence's parameters, and records that its request has published:
  // what is to be read. Nothing of it but the descriptor where the rest is not this request's, or cannot be served.
  BLINK_FN uint32_t length_of(uint32_t slot, uint32_t sequence) const {
    const blink_request& r = c_.requests[slot];
    const blink_descriptor& d = t_.params[sequence];
    if (!readable(r, d) || replaced(r, d)) return kHead;
    return words_of(d) + r.generated;
  }

  // Words of the payload of a descriptor that is readable.
  BLINK_FN uint32_t words_of(const blink_descriptor& d) const {
    return kHead + uint32_t(payload_words(d, t_.vocab_size));
  }

  // Whether a descriptor says that it is this request's, and not one of the same slot that comes late, from an earlier
  // request or from an earlier epoch of the lease (R4).
  BLINK_FN static bool belongs(const blink_request& r, const blink_descriptor& d) {
    return d.sequence == r.submission && d.epoch == r.epoch;
  }

  // Whether a prompt and its controls lie in their lease's part of the heap, by a descriptor that need not be whole.
  BLINK_FN bool prompt_in_heap(const blink_descriptor& d) const {
    return payload_words(d, t_.vocab_size) <= d.prompt_room &&
           uint64_t(d.prompt_offset) + d.prompt_room <= c_.prompt_heap;
  }

  // One thread's part of what `length_of` counts, from `begin` to `end`: the prompt goes into the sequence's
  // history, and behind it what a paused request has answered; the controls go into their table. Nothing in the
  // descriptor may be believed before the checksum has matched.
  BLINK_CALLED uint64_t read(uint32_t slot, uint32_t sequence, uint32_t begin, uint32_t end, unsigned member,
                             unsigned size) {
    const blink_descriptor& d = t_.params[sequence];
    const uint32_t* words = reinterpret_cast<const uint32_t*>(&d);
    const uint32_t* from = prompt(slot, d);
    uint32_t* to = history(sequence);
    const uint32_t prompt_end = kHead + d.prompt_tokens, payload = words_of(d);
    const uint32_t last = Min()(end, payload);
    CrcShare crc(begin < last ? last - begin : 0, begin == 0, member, size);
    uint32_t largest = 0;
    for (uint32_t left = crc.n_words(); left;) {
      uint32_t word[kAhead];
      const uint32_t n = Min()(left, kAhead);
      for (uint32_t i = 0; i < kAhead; ++i) {
        const uint32_t at = i < n ? begin + crc.index(left - 1 - i) : 0;
        word[i] = at < kHead ? words[at] : p_.load(from + (at - kHead));
      }
      for (uint32_t i = 0; i < kAhead; ++i) {
        if (i >= n) break;
        const uint32_t at = begin + crc.index(left - 1 - i);
        crc.add(left - 1 - i, word[i]);
        if (at < kHead) continue;
        if (at < prompt_end) {
          to[at - kHead] = word[i];
          largest = Max()(largest, word[i]);
        } else {
          controls(sequence)[at - prompt_end] = word[i];
        }
      }
      left -= n;
    }
    uint32_t wrong = largest >= t_.vocab_size ? kBadPrompt : 0;
    if (end > payload)
      wrong |= read_answer(slot, sequence, Max()(begin, payload) - payload, end - payload, member, size);
    return crc.share() | uint64_t(wrong) << 32;
  }

  // Returns 0, kTorn, or the reason to refuse the request.
  BLINK_FN uint32_t judge(const blink_request& r, const blink_descriptor& d, uint64_t found) const {
    if (replaced(r, d)) return BLINK_REASON_BAD_CHECKSUM;
    if (!readable(r, d) || ~low(found) != d.crc32c) return kTorn;
    if (high(found) & kBadPrompt) return BLINK_REASON_BAD_TOKEN;
    if (high(found) & kBadAnswer) return BLINK_REASON_BAD_CHECKSUM;
    if (d.output_room == 0 || d.output_offset + output_words(d) > c_.output_heap) return BLINK_REASON_BAD_RANGE;
    if (const uint32_t problem = check_grammar_range(d)) return problem;
    return check_parameters(d);
  }

 private:
  // Whether another payload lies in the slot than the one that a paused request was admitted with. How far its
  // sequence, its pages and its answer reach was decided by that one, so it resumes from no other, be its checksum
  // right or wrong (S13).
  BLINK_FN bool replaced(const blink_request& r, const blink_descriptor& d) const {
    return r.state == BLINK_STATE_DECODE_PAUSED && (d.crc32c != r.crc32c || d.prompt_tokens != r.prompt_tokens);
  }

  BLINK_FN bool readable(const blink_request& r, const blink_descriptor& d) const {
    return belongs(r, d) && d.prompt_tokens <= t_.max_context && counts_are_good(d) &&
           control_words(d, t_.vocab_size) <= t_.control_words && prompt_in_heap(d);
  }

  // One thread's part of the tokens that a paused request has published: it goes on where it was, so they are prefilled
  // again. They index what the engine reads, and the ring may have been written by anybody.
  BLINK_FN uint32_t read_answer(uint32_t slot, uint32_t sequence, uint32_t begin, uint32_t end, unsigned member,
                                unsigned size) {
    const blink_request& r = c_.requests[slot];
    uint32_t* to = history(sequence) + r.prompt_tokens;
    const uint64_t* from = outputs(slot);
    bool good = true;
    for (uint32_t i = begin + member; i < end; i += kAhead * size) {
      uint64_t record[kAhead];
      for (uint32_t k = 0; k < kAhead; ++k) record[k] = i + k * size < end ? p_.load(from + i + k * size) : 0;
      for (uint32_t k = 0; k < kAhead && i + k * size < end; ++k) {
        good = good && low(record[k]) < t_.vocab_size && record_is(record[k], i + k * size, r.submission);
        to[i + k * size] = low(record[k]);
      }
    }
    return good ? 0 : kBadAnswer;
  }

  // Written so that a NaN fails.
  BLINK_FN uint32_t check_parameters(const blink_descriptor& d) const {
    if (d.prompt_tokens == 0) return BLINK_REASON_EMPTY_PROMPT;
    if (d.prompt_tokens >= longest_context()) return BLINK_REASON_PROMPT_TOO_LONG;
    constexpr float kLarge = 1e30f;
    const bool good = d.max_tokens >= 1 && d.temperature >= 0 && d.temperature < kLarge && d.top_p > 0 &&
                      d.top_p <= 1 && d.min_p >= 0 && d.min_p <= 1 && d.repetition_penalty > 0 &&
                      d.repetition_penalty < kLarge && d.presence_penalty > -kLarge && d.presence_penalty < kLarge &&
                      d.frequency_penalty > -kLarge && d.frequency_penalty < kLarge &&
                      d.n_stop_ids <= BLINK_MAX_STOP_IDS && (d.n_processors == 0 || t_.n_processors != 0) &&
                      Max()(d.logprob_words, d.prompt_logprob_words) <= t_.vocab_size + 1;
    return good ? 0 : BLINK_REASON_BAD_PARAMETER;
  }

  // Whether a grammar is of a size that there may be, and lies in its lease's heap: 0, or the reason to refuse it.
  BLINK_FN uint32_t check_grammar_range(const blink_descriptor& d) const {
    if (d.grammar_words == 0) return 0;
    if (uint64_t(d.grammar_offset) + d.grammar_words > c_.prompt_heap) return BLINK_REASON_BAD_RANGE;
    return d.grammar_words > kGrammarHead && d.grammar_words <= c_.max_grammar_words ? 0 : BLINK_REASON_BAD_GRAMMAR;
  }

  P& p_;
  uint32_t readable_words_ = 0;
};

}  // namespace blink

#endif
