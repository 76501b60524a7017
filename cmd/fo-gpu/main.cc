// fo-gpu: queries the CUDA driver for the static tools, which start this program. Users run only
// its health command.
#include <string>

#include "base/exit_status.h"
#include "cli/app.h"
#include "cli/screen/output.h"
#include "cuda/device.h"
#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "cuda/nvml.h"
#include "gms/client/map_check.h"
#include "health.h"
#include "options.h"
#include "os/log.h"

namespace {

using namespace fo;
using base::ExitStatus;

std::string driver_choice(const fo_gpu::Options& options) {
  return options.driver.empty() ? cuda::Driver::choice_from_env() : options.driver;
}

ExitStatus map_check(const fo_gpu::Options& options) {
  const auto driver = cuda::Driver::open(driver_choice(options));
  const auto deadline = base::Deadline::after(options.map_timeout);
  const auto device = cuda::device_info(*driver, options.device);
  gms::RemapCheckRequest request;
  request.socket = options.socket;
  request.server_uid = options.server_uid;
  request.expect_hash = gms::LayoutHash(options.expect_hash);
  const gms::RemapCheck check = gms::map_and_read(driver, device, request, deadline);
  cli::print_line(gms::to_json(check));
  const ExitStatus status = gms::exit_status(check.outcome.result);
  if (status != ExitStatus::kOk) os::log_line(os::LogLevel::kError, check.outcome.reason);
  return status;
}

cuda::DeviceMemory device_memory(const fo_gpu::Options& options) {
  const std::string choice = driver_choice(options);
  if (!options.uuid.empty() && cuda::Driver::is_real(choice)) {
    return cuda::nvml_device_memory(options.uuid);  // cuInit would take longer than everything else
  }
  auto memory = cuda::device_memory(cuda::Driver::open(choice), options.device);
  if (!options.uuid.empty() && memory.uuid != options.uuid) {
    throw base::Error(ExitStatus::kUnavailable,
                      "find device " + base::quoted(options.uuid.value()) + ": device " +
                          std::to_string(options.device.value()) + " is " + memory.uuid.value());
  }
  return memory;
}

ExitStatus print_free(const fo_gpu::Options& options) {
  const base::ByteCount wanted = options.until_free.value_or(0);
  const auto deadline = base::Deadline::after(options.free_timeout);
  const cuda::DeviceMemory memory = device_memory(options);
  const cuda::MemoryInfo now = cuda::wait_until_free(memory, wanted, deadline);
  cli::print_line("{\"free\":" + std::to_string(now.free) + ",\"total\":" +
                  std::to_string(now.total) + ",\"uuid\":\"" + memory.uuid.value() + "\"}");
  if (now.free >= wanted) return ExitStatus::kOk;
  os::log(os::LogLevel::kError, "wait for free memory of device {}: {} bytes free, {} needed",
          base::quoted(memory.uuid.value()), now.free, wanted);
  return ExitStatus::kTryAgain;
}

}  // namespace

int main(int argc, char** argv) {
  fo_gpu::Options options;
  const cli::Tool tool{.name = "fo-gpu",
                       .summary = "Query the CUDA driver (a private helper).",
                       .version = FO_VERSION};
  return cli::run(argc, argv, tool, options, fo_gpu::declare, [&] {
    switch (options.command) {
      case fo_gpu::Options::Command::kFree:
        return print_free(options);
      case fo_gpu::Options::Command::kMapCheck:
        return map_check(options);
      case fo_gpu::Options::Command::kHealth:
        break;
    }
    return fo_gpu::print_health(options);
  });
}
