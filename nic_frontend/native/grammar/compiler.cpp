#include "nic_frontend/native/grammar/compiler.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <stdexcept>

#include "nic_frontend/native/grammar/determinizer.h"
#include "nic_frontend/native/grammar/plain.h"
#include "nic_frontend/native/grammar/reduced.h"
#include "ringbuffer/grammar.h"

namespace blink::grammar {

namespace {

constexpr uint32_t kHeadWords = sizeof(blink_grammar) / sizeof(uint32_t);

// The block of an automaton, word by word.
class Block {
 public:
  Block(const Automaton& automaton, const std::vector<uint32_t>& room, const std::vector<uint32_t>& plain)
      : automaton_(automaton), room_(room) {
    const uint32_t width = 1 + automaton.n_columns;
    if (width > 256) throw Refused{BLINK_GRAMMAR_TOO_LARGE};
    if (room[automaton.start] > BLINK_GRAMMAR_MAX_ROOM) throw Refused{BLINK_GRAMMAR_TOO_NESTED};
    rows_.reserve(size_t(automaton.n_states()) * width);
    for (uint32_t state = 0; state < automaton.n_states(); ++state) {
      rows_.push_back(state == 0 ? 0 : (automaton.accepting[state] ? BLINK_GRAMMAR_ACCEPTING : 0) | plain[state]);
      for (uint32_t column = 0; column < automaton.n_columns; ++column)
        rows_.push_back(word(automaton.row(state)[column]));
    }
  }

  size_t words() const { return kHeadWords + returns_.size() + rows_.size(); }

  void put(uint32_t* to) const {
    blink_grammar head{};
    head.magic = BLINK_GRAMMAR_MAGIC;
    head.words = uint32_t(words());
    head.n_states = automaton_.n_states();
    head.n_columns = 1 + automaton_.n_columns;
    head.n_returns = uint32_t(returns_.size());
    head.start = automaton_.start;
    head.stack_bound = returns_.size() > 1 ? BLINK_GRAMMAR_MAX_STACK : 0;
    for (uint32_t byte = 0; byte < 256; ++byte)
      head.column_of_byte[byte] = uint8_t(1 + automaton_.column_of_byte[byte]);
    std::memcpy(to, &head, sizeof(head));
    std::copy(returns_.begin(), returns_.end(), to + kHeadWords);
    std::copy(rows_.begin(), rows_.end(), to + kHeadWords + returns_.size());
  }

 private:
  // Of what it returns to, one state fewer is on the stack.
  uint32_t word(const Move& move) {
    if (move.next == 0) return 0;
    const uint32_t room = std::max(room_[move.next], move.back ? std::max(room_[move.back], 1u) - 1 : 0);
    if (room > BLINK_GRAMMAR_MAX_ROOM) return 0;
    return call(move.back) << BLINK_GRAMMAR_CALL_SHIFT | room << BLINK_GRAMMAR_ROOM_SHIFT | move.next;
  }

  uint32_t call(uint32_t back) {
    if (back == 0) return 0;
    const auto [found, is_new] = calls_.try_emplace(back, uint32_t(returns_.size()));
    if (is_new) returns_.push_back(back);
    if (returns_.size() > BLINK_GRAMMAR_MAX_RETURNS) throw Refused{BLINK_GRAMMAR_TOO_MANY_CALLS};
    return found->second;
  }

  const Automaton& automaton_;
  const std::vector<uint32_t>& room_;
  std::vector<uint32_t> returns_{0}, rows_;
  std::map<uint32_t, uint32_t> calls_;  // by the state to return to
};

void compile(const Program& program, const blink_grammar_limits& limits, uint32_t* block, uint32_t room,
             blink_grammar_result& result) {
  Budget budget(limits);
  Automaton automaton = make_deterministic(program, budget);
  remove_dead_ends(automaton, budget);
  automaton = make_small(automaton, budget);
  result.states = automaton.n_states();
  if (automaton.n_states() > BLINK_GRAMMAR_MAX_STATES) throw Refused{BLINK_GRAMMAR_TOO_MANY_STATES};
  const std::vector<PlainStep> steps = plain_steps(automaton, budget);
  std::vector<uint32_t> reserve(automaton.n_states());
  for (uint32_t state = 0; state < automaton.n_states(); ++state) reserve[state] = steps[state].pushes;
  const std::vector<uint32_t> needed = needed_room(automaton, reserve, budget);
  const Block made(automaton, needed, plain_characters(steps, needed));
  if (made.words() > room) throw Refused{BLINK_GRAMMAR_TOO_LARGE};
  result.words = uint32_t(made.words());
  made.put(block);
}

}  // namespace

}  // namespace blink::grammar

extern "C" void blink_grammar_compile(const uint32_t* program, uint32_t words, const blink_grammar_limits* limits,
                                      uint32_t* block, uint32_t room, blink_grammar_result* result) {
  using namespace blink::grammar;
  *result = {BLINK_GRAMMAR_OK, kNone, 0, 0};
  try {
    compile(Program(program, words), *limits, block, room, *result);
  } catch (const Refused& refused) {
    result->status = refused.status;
    result->rule = refused.rule;
  } catch (const std::bad_alloc&) {
    result->status = BLINK_GRAMMAR_TOO_LARGE;
  } catch (const std::length_error&) {
    result->status = BLINK_GRAMMAR_TOO_LARGE;
  }
}
