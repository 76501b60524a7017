// fo-gpu: asks the driver what the static tools can't. Private: started by them, always answers in
// JSON.
#include <string>

#include "base/exit_status.h"
#include "cli/app.h"
#include "cli/output.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "cuda/memory.h"
#include "cuda/nvml.h"
#include "gms/map_check.h"
#include "options.h"
#include "os/log.h"

namespace {

using namespace fo;
using base::ExitStatus;
using DriverPtr = std::shared_ptr<const cuda::Driver>;

ExitStatus map_check(const fo_gpu::Options& options, const DriverPtr& driver) {
  const auto deadline = base::Deadline::after(options.timeout);
  const auto device = cuda::device_info(*driver, base::DeviceOrdinal(options.device));
  const gms::RemapCheck check =
      gms::map_and_read(driver, device, options.socket, options.expect_hash, deadline);
  cli::print_line(gms::to_json(check));
  const ExitStatus status = gms::exit_status(check.outcome.result);
  if (status != ExitStatus::kOk) os::log_line(os::LogLevel::kError, check.outcome.reason);
  return status;
}

ExitStatus tell_free(const fo_gpu::Options& options, const DriverPtr& driver) {
  const base::DeviceOrdinal ordinal(options.device);
  // A real driver answers only to a context of hundreds of MiB, which would be part of the answer.
  const cuda::MemoryInfo memory =
      driver->simulated() ? cuda::memory_info(driver, ordinal)
                          : cuda::nvml_memory_info(cuda::device_info(*driver, ordinal).uuid);
  cli::print_line("{\"free\": " + std::to_string(memory.free) +
                  ", \"total\": " + std::to_string(memory.total) + "}");
  return ExitStatus::kOk;
}

}  // namespace

int main(int argc, char** argv) {
  fo_gpu::Options options;
  const cli::Tool tool{.name = "fo-gpu",
                       .summary = "Ask the CUDA driver (a private helper).",
                       .version = FO_VERSION};
  const auto body = [&] {
    const DriverPtr driver = cuda::Driver::open(
        options.driver.empty() ? cuda::Driver::choice_from_env() : options.driver);
    return base::to_int(options.command == fo_gpu::Options::Command::kFree
                            ? tell_free(options, driver)
                            : map_check(options, driver));
  };
  return cli::run(
      argc, argv, tool, options.common, [&](CLI::App& app) { fo_gpu::declare(app, options); },
      body);
}
