// What the waiters of lock_handover run once they have the lock: writes the monotonic clock, in
// nanoseconds and binary, to stdout. Static, so that its own start weighs little.
#include <time.h>
#include <unistd.h>

#include <cstdint>

int main() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  return ::write(STDOUT_FILENO, &ns, sizeof ns) == sizeof ns ? 0 : 1;
}
