// gms-load: publish a model's weights into a GMS, or import what is published there.
#include "base/error.h"
#include "base/exit_status.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cuda/device.h"
#include "gms/endpoint.h"
#include "options.h"
#include "os/log.h"

namespace {

using namespace fo;
using base::ExitStatus;

ExitStatus load(gms_load::Options& options) {
  weights::LoadOptions& load = options.load;
  load.role = gms_load::role(options);
  const auto driver = cuda::Driver::open(options.driver);
  const auto device = cuda::device_info(*driver, base::DeviceOrdinal(options.endpoint.device));
  const std::string socket =
      options.endpoint.socket.empty()
          ? gms::socket_path(gms::socket_dir_or_default(options.endpoint.socket_dir), device.uuid,
                             options.endpoint.tag)
          : options.endpoint.socket;
  std::optional<weights::LoadReport> report;
  {
    cli::Progress progress(options.common.quiet);
    load.on_progress = [&](base::ByteCount done, base::ByteCount total) {
      progress.show(done, total);
    };
    report = weights::load(driver, device, socket, load);
  }
  if (!report) {
    os::log_line(os::LogLevel::kError, "get the lock " + std::string(gms::to_string(load.role)) +
                                           " of " + base::quoted(socket) + ": timed out");
    return ExitStatus::kTryAgain;
  }
  cli::print_line(options.common.json ? weights::format_json(*report)
                                      : weights::format_text(*report));
  return ExitStatus::kOk;
}

}  // namespace

int main(int argc, char** argv) {
  gms_load::Options options;
  const cli::Tool tool{.name = "gms-load",
                       .summary = "Publish a model's weights into a GMS, or import what is there.",
                       .version = FO_VERSION};
  return cli::run(
      argc, argv, tool, options.common, [&](CLI::App& app) { gms_load::declare(app, options); },
      [&] { return base::to_int(load(options)); });
}
