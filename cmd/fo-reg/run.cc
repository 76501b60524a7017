#include <unistd.h>

#include <utility>

#include "base/error.h"
#include "commands.h"
#include "fleet/run_worker.h"
#include "net/address.h"
#include "worker.h"

namespace fo::fo_reg {

base::ExitStatus run(const Options& options) {
  RecordOptions wanted = options.records;
  if (options.common.command.empty()) {
    refuse("expected a command after '--'");
  }
  for (const std::string* url : {&wanted.run.ready_url, &wanted.run.drain_url}) {
    if (!url->empty()) static_cast<void>(net::parse_url(*url));
  }
  const auto registry = open_registry(wanted);
  wanted.worker.pid = static_cast<std::uint64_t>(::getpid());
  fleet::RunOptions run = wanted.run;
  Worker worker = read_worker(wanted, fleet::Life::kStarting);
  run.record = std::move(worker.record);
  run.card = std::move(worker.card);
  run.command = options.common.command;
  run.timeout = wanted.timeout;
  return base::ExitStatus{fleet::run_worker(*registry, run)};
}

}  // namespace fo::fo_reg
