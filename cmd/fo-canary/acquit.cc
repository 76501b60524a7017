#include "base/deadline.h"
#include "base/error.h"
#include "canary/judge/acquittal.h"
#include "commands.h"
#include "fleet/record/instance.h"
#include "loop/run.h"

namespace fo::fo_canary {

int acquit(const Options& options) {
  if (!fleet::is_instance_id(options.id)) {
    throw base::Error(base::ExitStatus::kUsage,
                      "id " + base::quoted(options.id) + ": not the id of a worker");
  }
  const auto registry = open_registry(options);
  const auto deadline = base::Deadline::after(options.timeout);
  const std::size_t count = loop::run_to_end(canary::acquit(*registry, options.id, deadline));
  return base::to_int(count > 0 ? base::ExitStatus::kOk : base::ExitStatus::kNo);
}

}  // namespace fo::fo_canary
