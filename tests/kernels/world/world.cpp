/* Runs worlds: the policy over one thread of the host, or over fibers, and a C interface for the tests. */
#include "world.h"

#include "fibers.h"
#include "kernels/scheduler/host.h"
#include "kernels/scheduler/scheduler.h"

namespace world {

// Over one thread, or over fibers of which the first has the clock and the world's turns.
template <class Memory>
class WorldPlatform : public Memory {
 public:
  WorldPlatform(World& world, const Memory& memory) : Memory(memory), world_(world) {}
  uint64_t now() { return world_.clock += 20; }
  uint64_t acquire(const uint64_t* p) {
    world_.act_between_reads();
    return Memory::acquire(p);
  }
  int launch(uint64_t, uint32_t shape, uint32_t set) { return world_.launch(shape, set); }
  int relaunch() { return world_.relaunch(); }
  void pause(bool idle) {
    if (this->thread() == 0) world_.pause(idle);
  }

 private:
  World& world_;
};

template <class Memory>
blink::Exit execute(World& world, const Memory& memory) {
  WorldPlatform<Memory> platform(world, memory);
  return blink::Scheduler<WorldPlatform<Memory>>(platform, world.c).run();
}

// One execution of the kernel after the other. "" or how its threads diverged.
std::string run(World& world, uint64_t seed, uint32_t n_threads) {
  blink::Team team(1);
  Fibers fibers(n_threads, seed);
  std::vector<blink::Exit> exits(n_threads);
  for (;;) {
    if (n_threads == 1) {
      exits[0] = execute(world, blink::HostMemoryModel(team, 0));
    } else {
      const std::string diverged =
          fibers.run([&](unsigned i) { exits[i] = execute(world, FiberMemoryModel(fibers, i)); });
      if (!diverged.empty()) return diverged;
    }
    if (exits[0] != blink::Exit::kRelaunch) return "";
    world.window = 0;
    world.tail = false;
    world.turn();
  }
}

}  // namespace world

extern "C" {

// Runs one world with so many threads of the policy; "" if every invariant held, else the first that did not.
// `coverage` tells what the run exercised.
const char* blink_world_run(uint64_t seed, const world::Sizes* sizes, uint64_t turns, uint32_t n_threads,
                            world::Coverage* coverage) {
  static std::string verdict;
  world::World w(seed, *sizes, turns);
  const std::string diverged = world::run(w, seed, n_threads);
  const blink_stats& s = w.c.state->stats;
  *coverage = {s.steps,
               s.tokens,
               s.completed,
               s.preempted,
               s.zombie_rows,
               s.torn_payloads,
               s.relaunches,
               s.refused_launches,
               s.leases_reclaimed,
               s.cancelled,
               w.coverage.armed,
               w.coverage.mixed,
               0};
  for (const world::Frontend& f : w.frontends) coverage->unsampled += f.unsampled;
  verdict = diverged.empty() ? w.verdict() : diverged;
  return verdict.c_str();
}
}
