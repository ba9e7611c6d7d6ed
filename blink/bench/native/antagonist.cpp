// Other tenants of a processor, for measurements under interference (README.md, B10).
//
//   blink-antagonist KIND[,KIND...] THREADS_PER_CORE CORE[,CORE...]
//
// Each thread is a process of its own, as other tenants are: they share no address space whose lock would hold
// them up. Kinds take turns over cores and over the threads of a core. Says "ready" when all are at work; works until
// its standard input ends; then says how often each kind's unit of work was done.

#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

extern char** environ;

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kCopyBytes = 64 << 20;  // beyond a core's share of any last-level cache, and beyond its TLB
constexpr size_t kMapBytes = 16 << 20;
constexpr size_t kSortItems = 1 << 20;
constexpr int kUnitWords = 20000;  // of the compile-like process: some milliseconds
constexpr const char* kUnit = "--unit";
constexpr auto kStartTimeout = std::chrono::seconds(30);

using Count = std::atomic<uint64_t>;

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "blink-antagonist: %s\n", message.c_str());
  _exit(2);
}

uint32_t next(uint32_t& state) {  // xorshift32, Marsaglia 2003
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return state;
}

void die_with(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before the call above
}

char* map_pages(size_t bytes) {
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) fail("out of memory");
  return static_cast<char*>(pages);
}

// Copies single pages in random order: every one misses the caches and the TLB.
void copy(Count& done) {
  char *from = map_pages(kCopyBytes), *to = map_pages(kCopyBytes);
  madvise(from, kCopyBytes, MADV_NOHUGEPAGE);
  madvise(to, kCopyBytes, MADV_NOHUGEPAGE);
  std::memset(from, 1, kCopyBytes);
  uint32_t state = 1 + static_cast<uint32_t>(getpid());
  const uint32_t pages = kCopyBytes / kPage;
  for (;;) {
    for (uint32_t i = 0; i < pages; ++i)
      std::memcpy(to + next(state) % pages * kPage, from + next(state) % pages * kPage, kPage);
    ++done;
  }
}

// Maps, touches, protects, drops and unmaps memory: page tables and TLB invalidations.
void churn(Count& done) {
  for (;; ++done) {
    char* memory = map_pages(kMapBytes);
    for (size_t at = 0; at < kMapBytes; at += kPage) memory[at] = 1;
    mprotect(memory, kMapBytes / 2, PROT_READ);
    madvise(memory, kMapBytes, MADV_DONTNEED);
    munmap(memory, kMapBytes);
  }
}

void sort(Count& done) {
  std::vector<uint32_t> items(kSortItems);
  uint32_t state = 1 + static_cast<uint32_t>(getpid());
  for (;; ++done) {
    std::generate(items.begin(), items.end(), [&] { return next(state); });
    std::sort(items.begin(), items.end());
  }
}

// Like a build: one short process after another, each of which loads, allocates and looks up many small things.
void spawn(Count& done) {
  char* const arguments[] = {const_cast<char*>("blink-antagonist"), const_cast<char*>(kUnit), nullptr};
  for (;; ++done) {
    pid_t child;
    if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) != 0)
      fail("cannot start a process");
    int status;
    waitpid(child, &status, 0);
  }
}

int unit() {
  std::unordered_map<std::string, std::vector<std::string>> symbols;
  uint32_t state = 1 + static_cast<uint32_t>(getpid());
  for (int i = 0; i < kUnitWords; ++i) {
    std::string name = "symbol_" + std::to_string(next(state) % 4096);
    symbols[name].push_back(name + std::to_string(i));
  }
  return symbols.size() > 1 ? 0 : 1;
}

const std::map<std::string, void (*)(Count&)> kKinds = {
    {"copy", copy}, {"map", churn}, {"sort", sort}, {"spawn", spawn}};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  std::stringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

void work(const std::string& kind, int core, pid_t parent, Count& started, Count& done) {
  die_with(parent);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  if (sched_setaffinity(0, sizeof cores, &cores) != 0) fail("core " + std::to_string(core) + " is not to be had");
  ++started;
  kKinds.at(kind)(done);
}

void wait_for_start(const Count& started, size_t n, const std::vector<pid_t>& workers) {
  const auto deadline = std::chrono::steady_clock::now() + kStartTimeout;
  while (started < n) {
    if (waitpid(-1, nullptr, WNOHANG) > 0 || std::chrono::steady_clock::now() > deadline) {
      for (pid_t worker : workers) kill(worker, SIGKILL);
      fail("not all threads started");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], kUnit) == 0) return unit();
  if (argc != 4) fail("usage: blink-antagonist KIND[,KIND...] THREADS_PER_CORE CORE[,CORE...]");
  const std::vector<std::string> kinds = split(argv[1]), cores = split(argv[3]);
  for (const std::string& kind : kinds)
    if (!kKinds.count(kind)) fail("unknown kind '" + kind + "': copy, map, sort and spawn are known");
  const int per_core = std::atoi(argv[2]);
  const pid_t self = getpid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // the end of standard input says the same, but only to a live reader

  const size_t n = cores.size() * static_cast<size_t>(per_core);
  auto* counts =
      new (mmap(nullptr, (kinds.size() + 1) * sizeof(Count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
          Count[kinds.size() + 1]();
  Count& started = counts[kinds.size()];
  std::vector<pid_t> workers;
  for (size_t i = 0; i < n; ++i) {
    const size_t kind = (i + i / cores.size()) % kinds.size();
    const pid_t worker = fork();
    if (worker < 0) fail("cannot start a process");
    if (worker == 0) work(kinds[kind], std::atoi(cores[i % cores.size()].c_str()), self, started, counts[kind]);
    workers.push_back(worker);
  }
  wait_for_start(started, n, workers);
  std::puts("ready");
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  for (pid_t worker : workers) kill(worker, SIGKILL);
  for (pid_t worker : workers) waitpid(worker, nullptr, 0);
  for (size_t i = 0; i < kinds.size(); ++i)
    std::printf("%s %llu\n", kinds[i].c_str(), static_cast<unsigned long long>(counts[i]));
  return 0;
}
