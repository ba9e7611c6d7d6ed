/* Pages: the KV pages that no sequence has, and the only code that takes them or has them back.
 *
 * S1: every page is either free, and then here, or in the block table of exactly one sequence that is not FREE. Callers
 * put what they take into a sequence's block table and give back a table's entries, all of them at once; what a page's
 * state is beyond that is known here alone.
 *
 * The free pages are a stack in device memory. All threads of the block call each function together and move a share of
 * the pages each. The count changes in thread 0, after the pages were moved: the others see it behind the caller's next
 * barrier.
 */
#ifndef BLINK_SCHEDULER_PAGES_H
#define BLINK_SCHEDULER_PAGES_H

#include "platform.h"

namespace blink {

// What can be seen of them, by whoever has the configuration.
class FreePages {
 public:
  BLINK_FN explicit FreePages(const blink_scheduler_config& config)
      : stack_(config.free_pages), count_(config.state->n_free_pages) {}

  BLINK_FN uint32_t count() const { return count_; }
  // The page that is taken as the `n`-th from now on, n < count().
  BLINK_FN uint32_t nth(uint32_t n) const { return stack_[count_ - 1 - n]; }

 protected:
  uint32_t* const stack_;
  uint32_t& count_;
};

template <class P>
class PagePool : public FreePages {
 public:
  BLINK_FN PagePool(P& platform, const blink_scheduler_config& config)
      : FreePages(config), p_(platform), n_pages_(config.total_pages) {}

  // Before the first: all pages are free, and page 0 is taken first.
  BLINK_FN void fill() {
    for (uint32_t i = p_.thread(); i < n_pages_; i += p_.threads()) stack_[i] = n_pages_ - 1 - i;
    set_count(n_pages_);
  }

  // Takes `n` pages, at most count(), into a sequence's block table from `to` on.
  BLINK_FN void take(uint32_t* to, uint32_t n) {
    const uint32_t top = count_;
    for (uint32_t i = p_.thread(); i < n; i += p_.threads()) to[i] = stack_[top - 1 - i];
    took(n);
  }

  // Takes the pages nth(0) to nth(n - 1), which threads have put into tables one by one.
  BLINK_FN void took(uint32_t n) { set_count(count_ - n); }

  // Has the `n` pages back that a sequence's block table holds from `from` on.
  BLINK_FN void give_back(const uint32_t* from, uint32_t n) {
    const uint32_t top = count_;
    for (uint32_t i = p_.thread(); i < n; i += p_.threads()) stack_[top + i] = from[i];
    set_count(top + n);
  }

 private:
  BLINK_FN void set_count(uint32_t count) {
    p_.sync();
    if (p_.thread() == 0) count_ = count;
  }

  P& p_;
  const uint32_t n_pages_;
};

}  // namespace blink

#endif
