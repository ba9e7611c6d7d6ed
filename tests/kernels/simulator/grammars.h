/* Grammars at random, a vocabulary of bytes for them, and what requests that have one answer. */
#pragma once
#include <map>
#include <random>
#include <vector>

#include "kernels/ops/sampling/answer_grammar.h"
#include "reference_crc.h"
#include "synthetic_answer.h"

namespace simulator {

constexpr uint32_t kLetters = 8;

// The bytes of all tokens: up to three letters each, and none of the first two.
struct Vocabulary {
  std::vector<uint32_t> first{0};
  std::vector<uint8_t> bytes;

  Vocabulary() {
    for (uint32_t t = 0; t < kVocab; ++t) {
      for (uint32_t n = t < 2 ? 0 : 1 + t % 3; n; --n) bytes.push_back('a' + mix(t * 7 + n) % kLetters);
      first.push_back(bytes.size());
    }
  }
};

// A good grammar, in which an answer may come to a dead end.
inline std::vector<uint32_t> make_grammar(std::mt19937_64& random) {
  blink_grammar head{};
  head.magic = BLINK_GRAMMAR_MAGIC;
  head.n_states = 2 + random() % 8;
  head.n_columns = 5;
  head.n_returns = 1 + random() % 3;
  head.start = 1 + random() % (head.n_states - 1);
  head.stack_bound = random() % 5;
  head.words = sizeof head / 4 + head.n_returns + head.n_states * head.n_columns;
  for (uint32_t byte = 0; byte < 256; ++byte) head.column_of_byte[byte] = 1 + byte / 2 % 4;
  const uint32_t* begin = reinterpret_cast<const uint32_t*>(&head);
  std::vector<uint32_t> words(begin, begin + sizeof head / 4);
  auto state = [&] { return uint32_t(1 + random() % (head.n_states - 1)); };
  for (uint32_t i = 0; i < head.n_returns; ++i) words.push_back(state());
  for (uint32_t i = 0; i < head.n_states; ++i) {
    words.push_back(i && random() % 3 ? BLINK_GRAMMAR_ACCEPTING : 0);
    for (uint32_t column = 1; column < head.n_columns; ++column) {
      const uint32_t call = random() % 4 ? 0 : random() % head.n_returns, room = random() % 8 ? 0 : 1;
      words.push_back(i && random() % 4 ? state() | room << BLINK_GRAMMAR_ROOM_SHIFT | call << BLINK_GRAMMAR_CALL_SHIFT
                                        : 0);
    }
  }
  return words;
}

using Words = std::vector<uint32_t>;

inline uint32_t crc_of(const Words& words) {
  return ~crc_bytes(~0u, words.data(), 4 * words.size());
}

// All grammars that there are, by their checksums, and the vocabulary. Nobody changes them.
struct GrammarBook {
  std::map<uint32_t, Words> by_crc;
  const Vocabulary vocabulary;

  GrammarBook() {
    std::mt19937_64 random(7);
    while (by_crc.size() < 32) {
      const Words words = make_grammar(random);
      by_crc[crc_of(words)] = words;
    }
  }
};
inline const GrammarBook& book() {
  static const GrammarBook all;
  return all;
}

// Makes a grammar one that is none.
inline void spoil_grammar(Words& words, std::mt19937_64& random) {
  blink_grammar& head = *reinterpret_cast<blink_grammar*>(words.data());
  uint32_t* rows = words.data() + sizeof head / 4 + head.n_returns;
  switch (random() % 12) {
    case 0:
      head.magic ^= 1 << random() % 32;
      break;
    case 1:
      head.words += 1 - 2 * (random() % 2);
      break;
    case 2:
      head.n_states = random() % 2 ? head.n_states + 1 : uint32_t(random());
      break;
    case 3:
      head.n_columns = random() % 2 ? 0 : uint32_t(random()) | 1 << 20;
      break;
    case 4:
      head.n_returns = random() % 2 ? 0 : BLINK_GRAMMAR_MAX_RETURNS + 1;
      break;
    case 5:
      head.start = random() % 2 ? 0 : head.n_states + random() % 3;
      break;
    case 6:
      head.stack_bound = BLINK_GRAMMAR_MAX_STACK + 1 + random() % 9;
      break;
    case 7:
      head.column_of_byte[random() % 256] = random() % 2 ? 0 : head.n_columns;
      break;
    case 8:
      rows[-1] = head.n_states + random() % 9;
      break;
    case 9:
      rows[random() % head.n_columns] = 1;
      break;
    case 10:
      rows[head.n_columns] |= 1 << (16 + random() % 15);
      break;
    default:
      rows[head.n_columns + 1] = random() % 2 ? head.n_states : head.n_returns << BLINK_GRAMMAR_CALL_SHIFT;
  }
}

// Where the walk through a token leads from `now`; false: it dies, or has nothing to walk through.
inline bool take_token(const blink::Grammar& grammar, uint32_t token, blink_grammar_state& now) {
  const Vocabulary& vocabulary = book().vocabulary;
  blink::PushedStates pushed;
  blink::GrammarWalk walk(grammar, now, pushed);
  const uint32_t first = vocabulary.first[token], n = vocabulary.first[token + 1] - first;
  const bool lives = walk.step_all(vocabulary.bytes.data() + first, n);
  blink_grammar_state next;
  walk.put(next);
  now = next;
  return n && lives;
}

// What a request with this seed answers at output position `index`, after token `previous`, where its answer stands at
// `now` of a grammar.
inline uint32_t answer_in(const blink::Grammar& grammar, const blink_grammar_state& now, uint64_t seed, uint32_t index,
                          uint32_t previous) {
  const uint32_t free = answer(seed, index, previous);
  if (free == BLINK_NO_TOKEN) return free;
  blink::PushedStates pushed;
  const bool ends = blink::GrammarWalk(grammar, now, pushed).may_end();
  if (ends && (free == kEos || free % 16 == 0)) return kEos;
  for (uint32_t i = 0; i < kVocab; ++i) {
    const uint32_t token = (free + i) % kVocab;
    blink_grammar_state next = now;
    if (token != kEos && take_token(grammar, token, next)) return token;
  }
  return ends ? kEos : BLINK_DEAD_END;
}

}  // namespace simulator
