// gms-stat: shows the layout and the clients of a GMS, and the processes that hold its memory,
// without delaying other clients.
#include <string>
#include <vector>

#include "base/exit_status.h"
#include "cli/app.h"
#include "cli/screen/output.h"
#include "gms/client/discover.h"
#include "gms/protocol/endpoint.h"
#include "gms/server/holders.h"
#include "gms/stat/stat.h"
#include "options.h"
#include "os/log.h"
#include "watch.h"

namespace {

using namespace fo;
using base::Deadline;
using base::ExitStatus;

ExitStatus show_all(const gms_stat::Options& options, const std::string& dir) {
  const auto rows = gms::read_all_stats(dir, options.stat, Deadline::after(options.timeout));
  if (!options.common.json) cli::print(gms::to_text(rows));
  ExitStatus status = ExitStatus::kOk;
  for (const gms::StatRow& row : rows) {
    if (options.common.json) cli::print_line(gms::to_json(row));
    if (row.status == ExitStatus::kOk) continue;
    os::log_line(os::LogLevel::kError, row.error);
    if (status == ExitStatus::kOk) status = row.status;
  }
  return status;
}

ExitStatus show_one(const gms_stat::Options& options, const std::string& socket) {
  const gms::Stat stat = gms::read_stat(socket, options.stat, Deadline::after(options.timeout));
  cli::print(options.common.json ? gms::to_json(stat) + "\n" : gms::to_text(stat));
  return stat.not_listed.empty() ? ExitStatus::kOk : ExitStatus::kTryAgain;
}

// Every server of the folder, and those of --server, may own memory of the device.
ExitStatus show_holders(const gms_stat::Options& options, const std::string& dir) {
  const Deadline deadline = Deadline::after(options.timeout);
  const base::DeviceOrdinal device = options.endpoint.device;
  std::vector<std::string> sockets = options.servers;
  for (const gms::FoundSocket& socket : gms::find_sockets(dir)) sockets.push_back(socket.path);
  const gms::Servers servers = gms::find_servers(sockets, deadline);
  const auto show = [&](const auto& holders) {
    cli::print(options.common.json ? gms::to_json(holders) + "\n" : gms::to_text(holders));
  };
  if (options.driver.empty() || options.driver == "auto" || options.driver == "cuda") {
    const std::string link = gms::socket_link(dir, device, options.endpoint.tag);
    show(gms::find_device_users(device.value(), gms::uuid_of_socket(link), servers));
  } else {
    show(gms::find_memory_holders(options.driver, device.value(), servers, deadline));
  }
  return ExitStatus::kOk;
}

}  // namespace

int main(int argc, char** argv) {
  gms_stat::Options options;
  const cli::Tool tool{.name = "gms-stat",
                       .summary = "Show the layout and the clients of a GMS.",
                       .version = FO_VERSION};
  return cli::run(argc, argv, tool, options, gms_stat::declare, [&] {
    const cli::EndpointOptions& endpoint = options.endpoint;
    options.stat.server_uid = endpoint.server_uid;
    const std::string dir = gms::socket_dir_or_default(endpoint.socket_dir);
    const std::string socket =
        gms::resolve_socket(endpoint.socket, dir, endpoint.device, endpoint.tag);
    if (options.holders) return show_holders(options, dir);
    if (options.watch) {
      gms_stat::watch(options, dir, options.all ? "" : socket);
      return ExitStatus::kOk;
    }
    return options.all ? show_all(options, dir) : show_one(options, socket);
  });
}
