// Programs for the grammar compiler, of every operation, most of them in long chains, under sanitizers: none takes
// longer than its limit, and what is compiled takes the texts that blink_grammar_match takes.
//   hostile_programs SEED SECONDS
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "nic_frontend/native/grammar/compiler.h"
#include "ringbuffer/grammar_walk.h"

namespace {

constexpr blink_grammar_limits kLimits{300'000, 150'000, 100};
constexpr double kMostSeconds =
    2.0;  // of a processor, for kLimits' 0.1 s: a sanitizer's share, and one look at the clock
constexpr uint32_t kRoom = 1 << 19;

double processor_s() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(seed) {}

  uint32_t below(uint32_t n) { return uint32_t(random_() % n); }

  std::vector<uint32_t> program() {
    words_ = {0, 0};
    n_ = 0;
    rules_ = below(3) ? 1 : 1 + below(40);
    chain_ = below(2) ? 1 + below(16) : 0;  // the operation that most nodes are
    const uint32_t length = below(8) ? 1 + below(40) : 1 + below(6000);
    for (uint32_t i = 0; i < length; ++i) add(chain_ && i > 2 && below(20) ? chain_ : below(16));
    for (uint32_t i = 0; i < rules_; ++i)
      words_.push_back((i ? below(n_) : n_ - 1) | (below(6) ? 0 : BLINK_GRAMMAR_GREEDY));
    words_[0] = n_;
    words_[1] = rules_;
    if (below(30) == 0) words_[below(uint32_t(words_.size()))] = uint32_t(random_());
    return words_;
  }

  std::string text() {
    std::string found;
    for (uint32_t n = below(12); n; --n) found += char(below(4) ? "ab01"[below(4)] : below(256));
    return found;
  }

 private:
  // The last node, mostly: so chains become deep.
  uint32_t node() { return n_ == 1 || below(4) ? n_ - 1 : below(n_); }

  void add(uint32_t op) {
    std::vector<uint32_t> a;
    const bool has_operands =
        op == BLINK_GRAMMAR_OP_CAT || op == BLINK_GRAMMAR_OP_ALT || op == BLINK_GRAMMAR_OP_REPEAT ||
        (op >= BLINK_GRAMMAR_OP_CLOSED && op <= BLINK_GRAMMAR_OP_EXCEPT) || op == BLINK_GRAMMAR_OP_MEMBERS;
    if (n_ == 0 && has_operands) op = BLINK_GRAMMAR_OP_BYTES;
    switch (op) {
      case BLINK_GRAMMAR_OP_BYTES:
      case BLINK_GRAMMAR_OP_UNTIL:
        for (uint32_t k = 1 + below(3); k; --k) a.push_back(below(3) ? "ab01"[below(4)] : below(256));
        break;
      case BLINK_GRAMMAR_OP_CHARS: {
        a.push_back(below(2));
        uint32_t first = below(100);
        for (uint32_t k = below(4); k; --k) {
          const uint32_t last = first + below(below(3) ? 20 : 50000);
          if (last > 0x10ffff) break;
          a.insert(a.end(), {first, last});
          first = last + 1 + below(100);
        }
        break;
      }
      case BLINK_GRAMMAR_OP_CAT:
      case BLINK_GRAMMAR_OP_ALT:
        for (uint32_t k = below(4); k; --k) a.push_back(node());
        break;
      case BLINK_GRAMMAR_OP_REPEAT: {
        const uint32_t least = below(10) ? below(4) : below(100'000);
        a = {node(), least, below(3) ? least + below(below(5) ? 5 : 100'000) : BLINK_GRAMMAR_NO_LIMIT};
        break;
      }
      case BLINK_GRAMMAR_OP_CALL:
        a = {below(rules_)};
        break;
      case BLINK_GRAMMAR_OP_CLOSED:
        a = {node()};
        break;
      case BLINK_GRAMMAR_OP_BOTH:
      case BLINK_GRAMMAR_OP_EXCEPT:
        a = {node(), node()};
        break;
      case BLINK_GRAMMAR_OP_MULTIPLE:
        a = {1 + below(below(10) ? 40 : 65'536), below(3)};
        break;
      case BLINK_GRAMMAR_OP_MEMBERS: {
        const uint32_t n = below(4);
        for (uint32_t k = 0; k < 2 + n; ++k) a.push_back(node());
        for (uint32_t k = 0; k < n; ++k) a.push_back(below(2));
        break;
      }
      default:
        break;
    }
    words_.push_back(op);
    words_.push_back(uint32_t(a.size()));
    words_.insert(words_.end(), a.begin(), a.end());
    ++n_;
  }

  std::mt19937_64 random_;
  std::vector<uint32_t> words_;
  uint32_t n_ = 0, rules_ = 1, chain_ = 0;
};

bool takes(const std::vector<uint32_t>& block, const std::string& text) {
  const blink::Grammar grammar(block.data());
  blink_grammar_state from;
  blink::begin_answer(grammar, from);
  blink::PushedStates pushed;
  blink::GrammarWalk walk(grammar, from, pushed);
  return walk.step_all(reinterpret_cast<const uint8_t*>(text.data()), uint32_t(text.size())) && walk.may_end();
}

int fail(uint64_t seed, const char* what) {
  std::printf("seed %llu: %s\n", (unsigned long long)seed, what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const uint64_t first = std::strtoull(argv[1], nullptr, 10);
  const time_t end = time(nullptr) + std::atoi(argv[2]);
  uint64_t seed = first, by_status[16] = {}, texts = 0;
  for (; time(nullptr) < end; ++seed) {
    Maker maker(seed);
    const std::vector<uint32_t> program = maker.program();
    std::vector<uint32_t> block(kRoom);
    blink_grammar_result result{};
    double began = processor_s();
    blink_grammar_compile(program.data(), uint32_t(program.size()), &kLimits, block.data(), kRoom, &result);
    if (processor_s() - began > kMostSeconds) return fail(seed, "it takes too long to compile");
    ++by_status[result.status & 15];
    block.resize(result.words);
    block.shrink_to_fit();  // so that what is read behind it is seen
    for (int i = 0; i < 8; ++i) {
      const std::string text = maker.text();
      began = processor_s();
      const uint32_t found = blink_grammar_match(program.data(), uint32_t(program.size()), &kLimits,
                                                 reinterpret_cast<const uint8_t*>(text.data()), uint32_t(text.size()));
      if (processor_s() - began > kMostSeconds) return fail(seed, "it takes too long to match");
      if (found != BLINK_GRAMMAR_OK && found != BLINK_GRAMMAR_EMPTY_LANGUAGE) break;
      if (result.status != BLINK_GRAMMAR_OK) continue;
      ++texts;
      if (takes(block, text) != (found == BLINK_GRAMMAR_OK)) return fail(seed, "a text is in one and not in the other");
    }
  }
  std::printf("%llu programs, %llu compiled, %llu texts compared\n", (unsigned long long)(seed - first),
              (unsigned long long)by_status[BLINK_GRAMMAR_OK], (unsigned long long)texts);
  return 0;
}
