// gms-load: publishes a model's weights or a snapshot into a GMS, imports a published layout, or
// drops it.
#include <utility>

#include "base/error.h"
#include "base/exit_status.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "cuda/device.h"
#include "gms/protocol/endpoint.h"
#include "options.h"
#include "os/log.h"
#include "os/process/process.h"
#include "weights/unpublish.h"

namespace {

using namespace fo;
using base::ExitStatus;

std::string socket_of(const gms_load::Options& options, const cuda::DeviceInfo& device) {
  const cli::EndpointOptions& endpoint = options.endpoint;
  return gms::resolve_socket(endpoint.socket, endpoint.socket_dir, device.uuid, endpoint.tag);
}

ExitStatus timed_out(gms::LockType role, const std::string& socket) {
  os::log_line(os::LogLevel::kError, "acquire lock " + std::string(gms::to_string(role)) + " of " +
                                         base::quoted(socket) + ": timed out");
  return ExitStatus::kTryAgain;
}

cuda::DeviceInfo open_device(const gms_load::Options& options,
                             std::shared_ptr<const cuda::Driver>& driver) {
  driver = cuda::Driver::open(options.driver);
  return cuda::device_info(*driver, options.endpoint.device);
}

ExitStatus unpublish(const gms_load::Options& options) {
  std::string socket = options.endpoint.socket;
  if (socket.empty()) {
    std::shared_ptr<const cuda::Driver> driver;
    socket = socket_of(options, open_device(options, driver));
  }
  const auto report = weights::unpublish(socket, options.load.timeout, options.endpoint.server_uid);
  if (!report) return timed_out(gms::LockType::kRw, socket);
  cli::print_line(options.common.json ? weights::format_json(*report)
                                      : weights::format_text(*report));
  return ExitStatus::kOk;
}

ExitStatus load(gms_load::Options& options) {
  weights::LoadOptions& load = options.load;
  load.role = gms_load::role(options);
  load.server_uid = options.endpoint.server_uid;
  os::raise_fd_limit();  // one or two files per shard
  if (options.no_verify) load.checksums = weights::Checksums::kIgnore;
  weights::LoadSource source = weights::open_source(load);
  std::shared_ptr<const cuda::Driver> driver;
  const auto device = open_device(options, driver);
  const std::string socket = socket_of(options, device);
  std::optional<weights::LoadReport> report;
  {
    cli::Progress progress(options.common.quiet);
    load.on_progress = [&](base::ByteCount done, base::ByteCount total) {
      progress.show(done, total);
    };
    report = weights::load(std::move(source), driver, device, socket, load);
  }
  if (!report) return timed_out(load.role, socket);
  cli::print_line(options.common.json ? weights::format_json(*report)
                                      : weights::format_text(*report));
  return ExitStatus::kOk;
}

}  // namespace

int main(int argc, char** argv) {
  gms_load::Options options;
  const cli::Tool tool{
      .name = "gms-load",
      .summary = "Publish weights into a GMS, import published ones, or drop them.",
      .version = FO_VERSION};
  return cli::run(argc, argv, tool, options, gms_load::declare, [&] {
    gms_load::check(options);
    return options.unpublish ? unpublish(options) : load(options);
  });
}
