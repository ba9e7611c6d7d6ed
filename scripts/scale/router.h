// Who gets a request: at random, where the least is open, or where the least would be to do, by what nodes have cached.
#pragma once
#include <random>
#include <vector>

#include "scripts/scale/node.h"

namespace scale {

enum class Policy { kRandom, kLeast, kKv };

class Router {
 public:
  // `prefill_weight`: how much dearer a block is that has to be computed than one that an open request holds.
  Router(Policy policy, double prefill_weight, uint32_t n_nodes, uint32_t n_labels, uint32_t system_tokens,
         uint64_t seed)
      : policy_(policy),
        prefill_weight_(prefill_weight),
        system_blocks_(system_tokens / kPage),
        held_(n_labels),
        loads_(n_nodes),
        random_(seed) {}

  // Sets the request's node.
  void choose(Request& request) {
    const uint32_t n = loads_.size(), first = random_() % n;  // ties fall anywhere
    request.node = first;
    if (policy_ == Policy::kRandom) return;
    overlap_.assign(n, 0);
    if (policy_ == Policy::kKv) find(request);
    double least = -1;
    for (uint32_t k = 0; k < n; ++k) {
      const uint32_t i = (first + k) % n;
      const double computed = blocks(request.prompt) - overlap_[i];
      const double cost = loads_[i].open + prefill_weight_ * (loads_[i].pending + computed);
      if (least >= 0 && cost >= least) continue;
      least = cost;
      request.node = i;
      request.to_compute = computed;
    }
    loads_[request.node].open += blocks(request.prompt);
    loads_[request.node].pending += request.to_compute;  // until its first token
  }

  void answering(const Request& request) {
    if (policy_ != Policy::kRandom) loads_[request.node].pending -= request.to_compute;
  }
  void finished(const Request& request) {
    if (policy_ != Policy::kRandom) loads_[request.node].open -= blocks(request.prompt);
  }

  void told(uint32_t node, const BlockEvent& event) {
    if (policy_ != Policy::kKv) return;
    std::vector<Held>& holders = held_[event.label];
    for (Held& held : holders) {
      if (held.node != node) continue;
      if (event.stored)
        held.blocks = std::max(held.blocks, event.block + 1);
      else
        held.blocks = std::min(held.blocks, event.block);
      if (held.blocks == 0) held = holders.back(), holders.pop_back();
      return;
    }
    if (event.stored) holders.push_back({node, event.block + 1});
  }

 private:
  struct Load {
    double open = 0, pending = 0;  // blocks of prompts
  };
  struct Held {
    uint32_t node, blocks;
  };

  static double blocks(uint32_t tokens) { return double(tokens) / kPage; }

  // The conversation's pages count behind its whole system prompt.
  void find(const Request& request) {
    for (const Held& held : held_[request.app]) overlap_[held.node] = held.blocks;
    for (const Held& held : held_[request.label]) {
      if (overlap_[held.node] >= system_blocks_)
        overlap_[held.node] = std::min<double>(held.blocks, (request.prompt - 1) / kPage);
    }
  }

  const Policy policy_;
  const double prefill_weight_;
  const uint32_t system_blocks_;
  std::vector<std::vector<Held>> held_;  // by label
  std::vector<Load> loads_;
  std::vector<double> overlap_;
  std::mt19937_64 random_;
};

}  // namespace scale
