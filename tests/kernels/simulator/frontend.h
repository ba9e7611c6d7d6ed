/* A frontend that does everything a frontend may do, at random, and checks everything it is told. */
#pragma once
#include <map>

#include "answer_checks.h"
#include "grammar_cache.h"
#include "outdated_payloads.h"
#include "request_faults.h"

namespace simulator {

class Frontend {
 public:
  Frontend(SimulatedRing& ring, uint32_t lease, Random& random)
      : answers(ring, random, [this](const std::string& what) { fail(what); }),
        outdated(ring, random),
        ring_(ring),
        c_(ring.c),
        lease_(lease),
        random_(random),
        faults_(ring, random),
        grammars_(ring, lease, random) {}

  std::string error;
  AnswerChecks answers;
  OutdatedPayloads outdated;
  bool quiet = false;   // submit nothing more
  bool tearing = true;  // let some payloads arrive after their request word

  void act(uint64_t now) {
    if (dead_until_) {
      if (now < dead_until_) return;
      dead_until_ = 0;
      attach();
    }
    if (now < still_until_) return mend_torn(now);  // what was on its way arrives
    if (still_until_ && now - last_beat_ < timeout() && !granted()) fail("R6: its lease was taken back early");
    still_until_ = 0;
    if (epoch_ == 0) attach();
    if (now - last_beat_ > BLINK_LEASE_BEAT_NS / 2) beat(now);
    if (!granted()) return;
    mend_torn(now);
    for (auto& [slot, sent] : open_) answers.read(slot, sent);
    for (auto it = open_.begin(); it != open_.end();) it = it->second.done ? retire(it) : std::next(it);
    for (auto it = releasing_.begin(); it != releasing_.end();) {
      const uint64_t word = status(it->first);
      const bool empty = blink::low(word) == it->second && (blink::high(word) & 0xf) == BLINK_STATE_EMPTY;
      if (empty) ranges_.erase(it->first), grammars_.give_back(it->first);
      it = empty ? releasing_.erase(it) : std::next(it);
    }
    check_unused(lease_ * share() + random_() % share());
    if (!quiet && random_.chance(30)) submit(now);
    if (!quiet && random_.chance(3)) cancel();
    if (!quiet && random_.chance(1) && random_.chance(10)) die(now);
    if (!quiet && random_.chance(1) && random_.chance(10)) leave();
    if (!quiet && random_.chance(1) && random_.chance(5) && epoch_ && !dead_until_) stand_still(now);
    if (!quiet && random_.chance(1)) write_late();
    if (!quiet && !late_.empty() && random_.chance(1)) outdated.write(late_.begin()->first, late_.begin()->second);
    if (!quiet && random_.chance(1)) write_nonsense();
  }

  const std::map<uint32_t, Sent>& open() const { return open_; }
  // Whether it has been silent for longer than a lease lasts, and is served all the same. A scan may take a while.
  bool overstays(uint64_t now) const {
    return dead_until_ && now - dead_since_ > timeout() + BLINK_LEASE_TIMEOUT_NS / 5 && granted();
  }
  bool idle() const { return open_.empty() && releasing_.empty() && dead_until_ == 0; }

 private:
  uint32_t share() const { return c_.n_slots / c_.n_leases; }
  void fail(const std::string& what) {
    if (error.empty()) error = "frontend " + std::to_string(lease_) + ": " + what;
  }

  void publish(uint64_t* word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
  uint64_t status(uint32_t slot) const { return __atomic_load_n(&c_.progress[slot].status, __ATOMIC_ACQUIRE); }
  void request(uint32_t slot, uint32_t sequence, uint32_t command) {
    publish(&c_.request_words[slot], sequence | uint64_t(command | (epoch_ & BLINK_EPOCH_MASK) << 8) << 32);
  }

  void attach() {
    ranges_.clear();
    grammars_.clear();
    open_.clear();
    releasing_.clear();
    asked_ = random_.chance(50) ? 0 : random_.chance(50) ? BLINK_LEASE_TIMEOUT_NS / 2 : 2 * BLINK_LEASE_TIMEOUT_NS;
    __atomic_store_n(&c_.leases[lease_].timeout_ns, asked_, __ATOMIC_RELAXED);
    publish(&c_.leases[lease_].word, blink::pair_word(epoch_ = ++epochs_, ++beats_));
  }
  void beat(uint64_t now) {
    last_beat_ = now;
    publish(&c_.leases[lease_].word, blink::pair_word(epoch_, ++beats_));
  }
  bool granted() const {
    const uint64_t ack = __atomic_load_n(&c_.lease_acks[lease_].word, __ATOMIC_ACQUIRE);
    return ack == blink::pair_word(epoch_, BLINK_LEASE_GRANTED);
  }
  uint64_t timeout() const { return std::max<uint64_t>(asked_, BLINK_LEASE_TIMEOUT_NS); }
  void die(uint64_t now) {
    dead_since_ = now;
    dead_until_ = now + timeout() * (random_.chance(50) ? 3 : 1) / 2;
  }
  void stand_still(uint64_t now) { still_until_ = now + timeout() * (1 + random_() % 9) / 10; }
  void leave() {
    publish(&c_.leases[lease_].word, 0);
    epoch_ = 0;
  }

  void check_unused(uint32_t slot) {
    const bool empty = (blink::high(status(slot)) & 0xf) == BLINK_STATE_EMPTY;
    if (!empty && !open_.count(slot) && !releasing_.count(slot)) fail("a slot nobody uses is not EMPTY");
  }

  // A submission of this lease's previous epoch arrives only now.
  void write_late() {
    const uint32_t slot = lease_ * share() + random_() % share();
    if (open_.count(slot) || releasing_.count(slot) || epoch_ < 2) return;
    const uint64_t stale = BLINK_COMMAND_SUBMIT | ((epoch_ - 1) & BLINK_EPOCH_MASK) << 8;
    publish(&c_.request_words[slot], (blink::low(status(slot)) + 1) | stale << 32);
  }

  // A word of the right epoch and sequence, whose command there is not.
  void write_nonsense() {
    const uint32_t slot = lease_ * share() + random_() % share();
    if (open_.count(slot) || releasing_.count(slot)) return;
    request(slot, blink::low(status(slot)) + 1, random_.chance(50) ? BLINK_COMMAND_NONE : 4 + random_() % 252);
  }

  void submit(uint64_t now) {
    const uint32_t slot = lease_ * share() + random_() % share();
    const uint64_t word = status(slot);
    if (open_.count(slot) || releasing_.count(slot)) return;
    if ((blink::high(word) & 0xf) != BLINK_STATE_EMPTY) return;
    Sent s;
    s.seed = random_();
    s.sequence = blink::low(word) + 1;
    s.ticket = ++tickets_;
    const uint32_t context = ring_.sizes.max_context;
    const uint32_t length = random_.chance(10) ? random_() % context : 1 + random_() % (context / 4);
    if (!ring_.texts.empty() && random_.chance(70)) {
      s.prompt = ring_.texts[random_() % ring_.texts.size()];
      s.prompt.resize(
          std::min<uint64_t>(length, random_.chance(50) ? s.prompt.size() : random_() % (s.prompt.size() + 1)));
    }
    while (s.prompt.size() < length) s.prompt.push_back(random_() % kVocab);
    s.max_tokens = random_.chance(10) ? 1 : random_.chance(20) ? context : 1 + random_() % 60;
    s.ignore_eos = random_.chance(30);
    blink_descriptor d{};
    d.sequence = s.sequence;
    d.epoch = epoch_;
    d.prompt_tokens = length;
    d.max_tokens = s.max_tokens;
    d.seed = s.seed;
    if (random_.chance(20)) d.salt[random_() % 2] = 1 + random_() % 2;
    d.temperature = 1, d.top_p = 1, d.repetition_penalty = 1;
    d.flags = s.ignore_eos ? BLINK_FLAG_IGNORE_EOS : 0;
    d.ticket = s.ticket;
    if (const uint32_t n = ring_.sizes.priorities) d.priority = int(random_() % n) - int(n / 2);
    ask(d);
    d.client = s.client = random_() % 3 + (random_.chance(50) ? 0 : 10 * (lease_ + 1));  // some use several frontends
    if (!place(d)) return;
    ranges_[slot] = d;
    faults_.spoil(s, d);
    if (ring_.sizes.grammar_words && random_.chance(50)) give_grammar(slot, now, s, d);
    d.crc32c = reference_crc(d, s.payload(d).data());
    if (faults_.prompt_in_heap(d) && random_.chance(2))
      s.expected_error = BLINK_REASON_BAD_CHECKSUM, d.crc32c ^= 1 << random_() % 32;
    s.torn |=
        s.expected_error == BLINK_REASON_BAD_CHECKSUM || !faults_.prompt_in_heap(d) || (tearing && random_.chance(10));
    if (!s.torn || s.expected_error) {
      write(slot, d, s);
    } else {
      s.torn_until = now + random_() % 1'000'000;  // the payload is overtaken by its request word
      late_[slot] = d;
      if (random_.chance(20)) outdated.write(slot, d);
    }
    s.ranges = d;
    request(slot, s.sequence, BLINK_COMMAND_SUBMIT);
    open_[slot] = s;
  }

  // For log-probabilities, and for changes of logits.
  void ask(blink_descriptor& d) {
    if (random_.chance(20)) d.logprob_words = 1 + random_() % (random_.chance(10) ? BLINK_LOGPROB_WORDS : 3);
    if (random_.chance(15)) d.prompt_logprob_words = 1 + random_() % (random_.chance(10) ? BLINK_LOGPROB_WORDS : 3);
    if (random_.chance(10)) d.n_biases = random_() % 20;
    if (random_.chance(10)) d.ban_words = random_() % 30;
    if (random_.chance(10)) d.n_processors = random_() % (BLINK_MAX_ASKED_PROCESSORS + 1);
    if (random_.chance(5)) d.flags |= BLINK_FLAG_ALLOWS;
  }

  // Takes ranges anywhere in the lease's heaps that nothing open has. False: there are none to be found.
  bool place(blink_descriptor& d) {
    d.prompt_room = blink::payload_words(d, kVocab) + random_() % 4;
    d.output_room = 1 + std::min(d.max_tokens, ring_.sizes.max_context) + random_() % 4;
    return range(&blink_descriptor::prompt_offset, prompt_room, c_.prompt_heap, d) &&
           range(&blink_descriptor::output_offset, blink::output_words, c_.output_heap, d);
  }
  static uint64_t prompt_room(const blink_descriptor& d) { return d.prompt_room; }
  bool range(uint32_t blink_descriptor::* offset, uint64_t (*room)(const blink_descriptor&), uint32_t heap,
             blink_descriptor& d) {
    for (unsigned attempt = 0; attempt < 20; ++attempt) {
      if (heap < room(d)) return false;
      d.*offset = random_() % (heap - room(d) + 1);
      bool mine = true;
      for (const auto& [slot, other] : ranges_)
        mine = mine && (d.*offset + room(d) <= other.*offset || other.*offset + room(other) <= d.*offset);
      mine = mine && (heap != c_.prompt_heap || offset != &blink_descriptor::prompt_offset ||
                      grammars_.is_free(d.*offset, room(d)));
      if (mine) return true;
    }
    return false;
  }

  // Holds the request to a grammar, which may be none, lie in no range, or arrive late.
  void give_grammar(uint32_t slot, uint64_t now, Sent& s, blink_descriptor& d) {
    const bool is_good = s.expected_error || !random_.chance(6);
    const CachedGrammar* grammar = grammars_.take(slot, is_good, [&](uint32_t words) {
      blink_descriptor probe{};
      probe.prompt_room = words;
      const bool found = range(&blink_descriptor::prompt_offset, prompt_room, c_.prompt_heap, probe);
      return found ? probe.prompt_offset : ~0u;
    });
    if (!grammar) return;
    d.grammar_offset = grammar->offset;
    d.grammar_words = grammar->words.size();
    d.grammar_name = grammar->name;
    d.grammar_crc32c = crc_of(grammar->words);
    if (!is_good) {
      faults_.spoil_range(s, d);
    } else {
      s.grammar = &book().by_crc.at(d.grammar_crc32c);
      blink::begin_answer(blink::Grammar(s.grammar->data()), s.standing);
    }
    write_grammar(*grammar, now, s);
  }
  // The words of a new grammar, or of one that is on its way. They may come later than the request.
  void write_grammar(const CachedGrammar& grammar, uint64_t now, Sent& s) {
    if (grammar.is_written) return;
    if (tearing && (grammar.due || random_.chance(10))) {
      s.torn = true;
      grammars_.delay(grammar, now + random_() % 1'000'000);
    } else {
      grammars_.write(grammar);
    }
  }
  void write(uint32_t slot, const blink_descriptor& d, const Sent& s) {
    c_.descriptors[slot] = d;
    const std::vector<uint32_t> payload = s.payload(d);
    if (faults_.prompt_in_heap(d)) std::copy(payload.begin(), payload.end(), ring_.prompt(slot, d));
  }
  void mend_torn(uint64_t now) {
    grammars_.write_due(now);
    for (auto it = late_.begin(); it != late_.end();) {
      const auto sent = open_.find(it->first);
      if (sent != open_.end() && now < sent->second.torn_until) {
        ++it;
        continue;
      }
      if (sent != open_.end()) write(it->first, it->second, sent->second);
      it = late_.erase(it);
    }
  }

  void cancel() {
    if (open_.empty()) return;
    auto it = std::next(open_.begin(), random_() % open_.size());
    it->second.cancelled = true;
    const bool at_once = random_.chance(30);  // do not even wait for the end
    request(it->first, it->second.sequence, at_once ? BLINK_COMMAND_RELEASE : BLINK_COMMAND_CANCEL);
    if (at_once) releasing_[it->first] = it->second.sequence, late_.erase(it->first), open_.erase(it);
  }

  using Open = std::map<uint32_t, Sent>;
  Open::iterator retire(Open::iterator it) {
    request(it->first, it->second.sequence, BLINK_COMMAND_RELEASE);
    releasing_[it->first] = it->second.sequence;
    late_.erase(it->first);
    return open_.erase(it);
  }

  SimulatedRing& ring_;
  blink_scheduler_config& c_;
  const uint32_t lease_;
  Random& random_;
  RequestFaults faults_;
  GrammarCache grammars_;
  uint32_t epoch_ = 0, epochs_ = 0, beats_ = 0, tickets_ = 0;
  uint64_t asked_ = 0, last_beat_ = 0, dead_since_ = 0, dead_until_ = 0, still_until_ = 0;
  Open open_;
  std::map<uint32_t, uint32_t> releasing_;
  std::map<uint32_t, blink_descriptor> ranges_;  // of every slot that is not known to be empty
  std::map<uint32_t, blink_descriptor> late_;
};

}  // namespace simulator
