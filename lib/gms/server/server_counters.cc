#include "gms/server/server_counters.h"

#include <sys/mman.h>

#include <cerrno>
#include <new>

#include "base/error.h"

namespace fo::gms {

void ServerCounters::reset_gauges() {
  sessions.reset();
  waiting.reset();
  for (Gauge* gauge :
       {&up, &ready, &connections, &allocations, &allocated_bytes, &committed, &is_protected}) {
    gauge->set(0);
  }
}

CounterPage create_counter_page() {
  void* memory = ::mmap(nullptr, sizeof(ServerCounters), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) base::throw_errno(errno, "map memory for counters");
  return CounterPage(new (memory) ServerCounters);
}

void UnmapCounters::operator()(ServerCounters* counters) const {
  ::munmap(counters, sizeof(ServerCounters));
}

}  // namespace fo::gms
