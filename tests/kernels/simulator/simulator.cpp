/* Runs simulations: the policy over one thread of the host, or over fibers, and a C interface for the tests. */
#include "world.h"

#include "fibers.h"
#include "kernels/scheduler/host.h"
#include "kernels/scheduler/scheduler.h"

namespace simulator {

// Over one thread, or over fibers of which the first has the clock and the simulation's turns.
template <class Memory>
class SimulatedPlatform : public Memory {
 public:
  SimulatedPlatform(Simulator& simulation, const Memory& memory) : Memory(memory), simulation_(simulation) {}
  uint64_t now() { return simulation_.clock += 20; }
  uint64_t acquire(const uint64_t* p) {
    simulation_.act_between_reads();
    return Memory::acquire(p);
  }
  int launch(uint64_t, uint32_t shape, uint32_t set) { return simulation_.launch(shape, set); }
  int relaunch() { return simulation_.relaunch(); }
  void pause(bool idle) {
    if (this->thread() == 0) simulation_.pause(idle);
  }

 private:
  Simulator& simulation_;
};

template <class Memory>
blink::Exit execute(Simulator& simulation, const Memory& memory) {
  SimulatedPlatform<Memory> platform(simulation, memory);
  return blink::Scheduler<SimulatedPlatform<Memory>>(platform, simulation.c).run();
}

// One execution of the kernel after the other. "" or how its threads diverged.
std::string run(Simulator& simulation, uint64_t seed, uint32_t n_threads) {
  blink::Team team(1);
  Fibers fibers(n_threads, seed);
  std::vector<blink::Exit> exits(n_threads);
  for (;;) {
    if (n_threads == 1) {
      exits[0] = execute(simulation, blink::HostMemoryModel(team, 0));
    } else {
      const std::string diverged =
          fibers.run([&](unsigned i) { exits[i] = execute(simulation, FiberMemoryModel(fibers, i)); });
      if (!diverged.empty()) return diverged;
    }
    if (exits[0] != blink::Exit::kRelaunch) return "";
    simulation.window = 0;
    simulation.tail = false;
    simulation.turn();
  }
}

}  // namespace simulator

extern "C" {

// Runs one simulation with so many threads of the policy; "" if every invariant held, else the first that did not.
// `coverage` tells what the run exercised.
const char* blink_simulator_run(uint64_t seed, const simulator::Sizes* sizes, uint64_t turns, uint32_t n_threads,
                                simulator::Coverage* coverage) {
  static std::string verdict;
  simulator::Simulator w(seed, *sizes, turns);
  const std::string diverged = simulator::run(w, seed, n_threads);
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
               0,
               s.prefix_hits,
               s.prefix_evictions,
               w.coverage.awaited,
               w.follower.records,
               w.follower.retold,
               w.follower.compared,
               w.c.state->host_copies,
               w.c.state->brought_back,
               0,
               0,
               w.coverage.wide,
               0,
               0,
               s.draft_tokens,
               s.accepted_tokens};
  for (const simulator::Frontend& f : w.frontends) {
    coverage->unsampled += f.answers.unsampled;
    coverage->constrained += f.answers.constrained;
    coverage->dead_ends += f.answers.dead_ends;
    coverage->scored += f.answers.scored;
    coverage->outdated += f.outdated.written;
  }
  verdict = diverged.empty() ? w.verdict() : diverged;
  return verdict.c_str();
}
}
