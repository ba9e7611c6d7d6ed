/* A frontend that writes anything, at any time, into all that a frontend may write, beside two that keep the protocol.
 *
 *   hostile MUTATIONS SEED    prints what it did; exits 1 and prints which invariant did not hold
 *
 * Built with the address sanitizer, it also finds a store or a load beside what the scheduler owns.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/scheduler/host.h"
#include "kernels/scheduler/scheduler.h"
#include "world.h"

namespace simulator {

constexpr uint32_t kLeases = 3, kHostile = 2;

class Attacker {
 public:
  Attacker(SimulatedRing& ring, Random& random, uint64_t mutations)
      : left(mutations), ring_(ring), c_(ring.c), random_(random) {}

  void act() {
    if (left == 0) return publish(&c_.leases[kHostile].word, 0);  // it leaves, and its slots are emptied
    for (uint64_t n = random_() % 4; n && left; --n, --left) mutate();
    if (random_() % 8) beat();
  }

  uint64_t left, submitted = 0;

 private:
  uint32_t share() const { return c_.n_slots / c_.n_leases; }
  uint32_t slot() { return kHostile * share() + random_() % share(); }
  static void publish(uint64_t* word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
  uint32_t epoch() const { return blink::low(c_.leases[kHostile].word); }

  // A number that bounds are made for.
  uint32_t number() {
    static const uint32_t kNumbers[] = {0, 1, 2, 15, 16, 31, 32, 255, 256, 65535, 1u << 20, 1u << 30, 1u << 31, ~0u};
    const uint32_t one = kNumbers[random_() % (sizeof(kNumbers) / sizeof(*kNumbers))];
    return random_() % 3 ? one : random_() % 2 ? one + random_() % 5 - 2 : uint32_t(random_());
  }

  void beat() {
    const uint64_t word = c_.leases[kHostile].word;
    publish(&c_.leases[kHostile].word,
            blink::pair_word(blink::low(word) ? blink::low(word) : 1, blink::high(word) + 1));
  }

  void mutate() {
    if (random_() % 300 == 0)  // all that it has open ends
      return publish(&c_.leases[kHostile].word, blink::pair_word(random_() % 4 ? epoch() + 1 : number(), number()));
    switch (random_() % 16) {
      case 1:
        return publish(&c_.leases[kHostile].timeout_ns, uint64_t(number()) << random_() % 33);
      case 2:
        return publish(&c_.request_words[slot()], random_());
      case 3:
      case 4:
      case 5:
        return command();
      case 6:
      case 7:
        return overwrite(&c_.descriptors[slot()], sizeof(blink_descriptor) / 4);
      case 8:
        return overwrite(c_.prompts + uint64_t(kHostile) * c_.prompt_heap, c_.prompt_heap);
      case 9:
        return flip(&c_.descriptors[slot()], sizeof(blink_descriptor));
      default:
        return submit();
    }
  }

  void overwrite(void* at, uint64_t words) { static_cast<uint32_t*>(at)[random_() % words] = number(); }
  void flip(void* at, uint64_t bytes) { static_cast<uint8_t*>(at)[random_() % bytes] ^= 1u << random_() % 8; }

  // Of the right epoch, and of a sequence near the slot's.
  void command() {
    const uint32_t s = slot(), sequence = blink::low(c_.progress[s].status) + random_() % 3 - 1 + (random_() % 9 == 0);
    publish(&c_.request_words[s], blink::request_word(sequence, random_() % 6, epoch()));
  }

  // One that is whole, and of which one field is wrong, or its payload changes behind it.
  void submit() {
    const uint32_t s = slot(), sequence = blink::low(c_.progress[s].status) + 1;
    blink_descriptor d{};
    d.sequence = sequence;
    d.epoch = epoch() + (random_() % 16 == 0);
    d.prompt_tokens = 1 + random_() % (ring_.sizes.max_context / 2);
    d.max_tokens = 1 + random_() % 40;
    d.seed = random_();
    d.temperature = d.top_p = d.repetition_penalty = 1;
    d.ticket = random_() % 4 ? ++tickets_ : number();
    ring_.place(s, d);
    if (random_() % 2) overwrite(&d, (sizeof(d) - 4) / 4);
    const uint64_t words = blink::payload_words(d, kVocab);
    if (d.prompt_tokens <= c_.prompt_heap && d.prompt_offset + words <= c_.prompt_heap) {
      uint32_t* prompt = ring_.prompt(s, d);
      for (uint32_t i = 0; i < d.prompt_tokens; ++i) prompt[i] = random_() % (random_() % 99 ? kVocab : kVocab + 9);
      d.crc32c = reference_crc(d, prompt);
    }
    c_.descriptors[s] = d;
    publish(&c_.request_words[s], blink::request_word(sequence, BLINK_COMMAND_SUBMIT, epoch()));
    ++submitted;
  }

  SimulatedRing& ring_;
  blink_scheduler_config& c_;
  Random& random_;
  uint32_t tickets_ = 0;
};

class HostilePlatform : public blink::HostMemoryModel {
 public:
  HostilePlatform(blink::Team& team, Simulator& simulation, Attacker& attacker)
      : HostMemoryModel(team, 0), simulation_(simulation), attacker_(attacker) {}
  uint64_t now() { return simulation_.clock += 20; }
  uint64_t acquire(const uint64_t* p) {  // between any two of the policy's reads
    simulation_.act_between_reads();
    if (++reads_ % 256 == 0) attacker_.act();
    return HostMemoryModel::acquire(p);
  }
  int launch(uint64_t, uint32_t shape, uint32_t set) { return simulation_.launch(shape, set); }
  int relaunch() { return simulation_.relaunch(); }
  void pause(bool idle) {
    if (++turns_ % 4 == 0) attacker_.act();
    if (attacker_.left == 0) simulation_.quieten();
    simulation_.pause(idle);
  }

 private:
  Simulator& simulation_;
  Attacker& attacker_;
  uint32_t reads_ = 0, turns_ = 0;
};

Sizes drawn(Random& random) {
  const uint32_t page = 1u << random() % 5, context = 32 + random() % 200, pages = (context + page - 1) / page;
  Sizes sizes{16 * kLeases * uint32_t(1 + random() % 3), kLeases, uint32_t(2 + random() % 16), context, page,
              uint32_t(pages + random() % (4 * pages)),  64,      uint32_t(1 + random() % 8),  5000};
  sizes.stage_words = random() % 2 ? 0 : 16;
  sizes.prefix_cache = random() % 4 != 0;
  return sizes;
}

}  // namespace simulator

int main(int argc, char** argv) {
  using namespace simulator;
  if (argc != 3) return 2;
  const uint64_t mutations = std::strtoull(argv[1], nullptr, 10), seed = std::strtoull(argv[2], nullptr, 10);
  Random random(seed);
  Simulator simulation(seed, drawn(random), ~0ull);
  simulation.distrust_last();
  Attacker attacker(simulation.ring, random, mutations);
  blink::Team team(1);
  HostilePlatform platform(team, simulation, attacker);
  while (blink::Scheduler<HostilePlatform>(platform, simulation.c).run() == blink::Exit::kRelaunch) {
    simulation.window = 0;
    simulation.tail = false;
    simulation.turn();
  }
  const blink_stats& s = simulation.c.state->stats;
  uint64_t answers = 0;
  for (const Frontend& f : simulation.frontends) answers += f.answers.finished;
  const std::string verdict = simulation.verdict();
  std::printf(
      "mutations %llu submissions %llu completed in all %llu torn %llu failed %llu, polite ones that ended right %llu "
      "%s\n",
      (unsigned long long)mutations, (unsigned long long)attacker.submitted, (unsigned long long)s.completed,
      (unsigned long long)s.torn_payloads, (unsigned long long)s.failed, (unsigned long long)answers, verdict.c_str());
  return verdict.empty() && answers ? 0 : 1;
}
