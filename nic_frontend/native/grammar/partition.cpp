#include "nic_frontend/native/grammar/partition.h"

#include <algorithm>
#include <numeric>

namespace blink::grammar {

namespace {

// A partition that is refined by marking elements and splitting the sets that have some (Valmari, "Fast brief practical
// DFA minimization", 2012).
class Sets {
 public:
  // Elements with equal keys begin in one set.
  explicit Sets(const std::vector<uint32_t>& keys) : elements_(keys.size()), place_(keys.size()), set_(keys.size()) {
    std::iota(elements_.begin(), elements_.end(), 0u);
    std::sort(elements_.begin(), elements_.end(),
              [&](uint32_t a, uint32_t b) { return keys[a] != keys[b] ? keys[a] < keys[b] : a < b; });
    for (uint32_t i = 0; i < elements_.size(); ++i) {
      if (i == 0 || keys[elements_[i]] != keys[elements_[i - 1]]) {
        if (i) past_.push_back(i);
        first_.push_back(i);
        marked_.push_back(0);
      }
      place_[elements_[i]] = i;
      set_[elements_[i]] = uint32_t(first_.size() - 1);
    }
    if (!elements_.empty()) past_.push_back(uint32_t(elements_.size()));
  }

  uint32_t count() const { return uint32_t(first_.size()); }
  uint32_t set_of(uint32_t element) const { return set_[element]; }
  const uint32_t* begin(uint32_t set) const { return elements_.data() + first_[set]; }
  const uint32_t* end(uint32_t set) const { return elements_.data() + past_[set]; }

  void mark(uint32_t element) {
    const uint32_t set = set_[element], at = place_[element], to = first_[set] + marked_[set];
    if (at < to) return;
    if (marked_[set]++ == 0) touched_.push_back(set);
    std::swap(elements_[at], elements_[to]);
    place_[elements_[at]] = at;
    place_[elements_[to]] = to;
  }

  // Splits what is marked from what is not; the smaller part becomes a new set.
  void split() {
    for (const uint32_t set : touched_) {
      const uint32_t middle = first_[set] + marked_[set];
      marked_[set] = 0;
      if (middle == past_[set]) continue;
      const bool marked_is_smaller = middle - first_[set] <= past_[set] - middle;
      first_.push_back(marked_is_smaller ? first_[set] : middle);
      past_.push_back(marked_is_smaller ? middle : past_[set]);
      marked_.push_back(0);
      (marked_is_smaller ? first_ : past_)[set] = middle;
      for (uint32_t i = first_.back(); i < past_.back(); ++i) set_[elements_[i]] = count() - 1;
    }
    touched_.clear();
  }

 private:
  std::vector<uint32_t> elements_, place_, set_;  // in the order of their sets; where each is; which set has it
  std::vector<uint32_t> first_, past_, marked_;   // of each set
  std::vector<uint32_t> touched_;                 // sets with marked elements
};

}  // namespace

std::vector<uint32_t> partition(const std::vector<uint32_t>& colours, std::vector<Transition> transitions,
                                Budget& budget) {
  const size_t n = colours.size();
  budget.spend(16 * (n + transitions.size()));
  Sets states(colours);
  std::vector<uint32_t> labels(transitions.size());
  for (size_t i = 0; i < transitions.size(); ++i) labels[i] = transitions[i].label;
  Sets cords(labels);  // of transitions: of one label, to one part
  std::vector<uint32_t> into_first(n + 1, 0), into(transitions.size());
  for (const Transition& t : transitions) ++into_first[t.to + 1];
  for (size_t i = 0; i < n; ++i) into_first[i + 1] += into_first[i];
  std::vector<uint32_t> at(into_first.begin(), into_first.end() - 1);
  for (uint32_t i = 0; i < transitions.size(); ++i) into[at[transitions[i].to]++] = i;
  const auto split_cords = [&](uint32_t part) {
    for (const uint32_t* state = states.begin(part); state != states.end(part); ++state) {
      budget.spend(1 + into_first[*state + 1] - into_first[*state]);
      for (uint32_t i = into_first[*state]; i < into_first[*state + 1]; ++i) cords.mark(into[i]);
    }
    cords.split();
  };
  // Transitions of one label go to different parts from the start, of all parts but the first.
  uint32_t done = 1;
  for (; done < states.count(); ++done) split_cords(done);
  for (uint32_t cord = 0; cord < cords.count(); ++cord) {
    budget.spend(1 + uint64_t(cords.end(cord) - cords.begin(cord)));
    for (const uint32_t* i = cords.begin(cord); i != cords.end(cord); ++i) states.mark(transitions[*i].from);
    states.split();
    for (; done < states.count(); ++done) split_cords(done);
  }
  std::vector<uint32_t> parts(n), number(states.count(), kNone);
  uint32_t next = 0;
  for (uint32_t state = 0; state < n; ++state) {
    uint32_t& part = number[states.set_of(state)];
    if (part == kNone) part = next++;
    parts[state] = part;
  }
  return parts;
}

}  // namespace blink::grammar
