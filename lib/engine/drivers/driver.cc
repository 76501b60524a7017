#include "engine/drivers/driver.h"

#include <utility>

#include "base/error.h"
#include "engine/drivers/drivers.h"

namespace fo::engine {
namespace {

using base::Error;
using base::ExitStatus;

// The driver for the steps without a command; nullptr for an engine that only commands drive.
std::unique_ptr<EngineDriver> make_engine(const DriverOptions& options) {
  const bool alone = options.sleep_command.empty() && options.wake_command.empty();
  switch (options.kind) {
    case EngineKind::kVllm:
      return drive_vllm(options.url, options.sleep_level);
    case EngineKind::kSglang:
      return drive_sglang(options.url, alone);
    case EngineKind::kDynamo:
      if (options.sleep_level == 2 && options.wake_command.empty()) {
        throw Error(ExitStatus::kUsage,
                    "drive a Dynamo worker: at sleep level 2, a command to wake it is needed");
      }
      return drive_dynamo(options.system_url, options.sleep_level, alone);
    case EngineKind::kCold:
      return drive_vllm(options.url, std::nullopt);
    case EngineKind::kCommand:
      break;
  }
  if (options.sleep_command.empty() || options.wake_command.empty()) {
    throw Error(
        ExitStatus::kUsage,
        "drive an engine by commands: one to put it to sleep and one to wake it are needed");
  }
  return nullptr;
}

}  // namespace

boost::asio::awaitable<std::optional<double>> EngineDriver::progress(base::Deadline) {
  co_return std::nullopt;
}

std::unique_ptr<EngineDriver> make_driver(const DriverOptions& options, loop::Children& children) {
  if (options.sleep_level != 1 && options.sleep_level != 2) {
    throw Error(ExitStatus::kUsage, "drive an engine: the sleep level is 1 or 2");
  }
  std::unique_ptr<EngineDriver> engine = make_engine(options);
  const bool has_command = !options.sleep_command.empty() || !options.wake_command.empty() ||
                           !options.health_command.empty() || !options.prove_command.empty();
  if (!has_command) return engine;
  return drive_by_commands(options, children, std::move(engine));
}

}  // namespace fo::engine
