// The program that the waiters of lock_handover run with the lock: writes the monotonic clock, in
// nanoseconds and binary, to stdout. It is static, so that it starts fast.
#include <time.h>
#include <unistd.h>

#include <cstdint>

int main() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  return ::write(STDOUT_FILENO, &ns, sizeof ns) == sizeof ns ? 0 : 1;
}
