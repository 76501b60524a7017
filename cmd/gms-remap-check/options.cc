#include "options.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/text.h"
#include "cli/config/variables.h"
#include "cli/options.h"
#include "gms/client/discover.h"
#include "gms/protocol/endpoint.h"

namespace fo::gms_remap_check {
namespace {

using base::Error;
using base::ExitStatus;

}  // namespace

void declare(CLI::App& app, Options& options) {
  cli::add_endpoint(app, options.endpoint, cli::DeviceOfSocket::kWhereToMap);
  CLI::Option* devices =
      cli::add_devices(app, options.devices, "devices to check, one socket each")->default_str("");
  devices->excludes(app.get_option("--socket"))->excludes(app.get_option("--device"));
  app.parse_complete_callback([&options, devices] { options.many = devices->count() > 0; });
  cli::add_remap_timeout(app, "--timeout", options.timeout, "limit for the whole check");
  CLI::Option* expect = app.add_option("--expect-hash", options.expect_hashes,
                                       "the layout must have this hash (one for each socket)")
                            ->delimiter(',')
                            ->type_name("HASH,...");
  app.add_option("--hash-file", options.hash_file, "the layout must have the hash saved here")
      ->excludes(expect)
      ->type_name("FILE");
  app.add_option("--save-hash", options.save_hash, "save the layout's hash here on success")
      ->type_name("FILE");
  app.add_flag("--map", options.map, "map every allocation and read through the mapping");
  cli::add_driver(app, options.driver);
  cli::add_status_fd(app, options.status_fd);
  app.add_flag("--exec", options.exec, "exec COMMAND on success");
  cli::add_variables(app, {"FO_LIBEXEC_DIR", "TMPDIR"});
}

std::vector<gms::RemapCheckRequest> to_requests(const Options& options) {
  if (options.exec != !options.common.command.empty()) {
    throw Error(ExitStatus::kUsage, "--exec and a command after '--' go together");
  }
  const cli::EndpointOptions& endpoint = options.endpoint;
  const std::string dir = gms::socket_dir_or_default(endpoint.socket_dir);
  std::vector<base::DeviceOrdinal> devices = options.devices;
  if (!options.many) devices = {endpoint.device};
  if (devices.empty()) devices = gms::find_devices(dir, {endpoint.tag});
  if (devices.empty()) {
    throw Error(ExitStatus::kUnavailable,
                "look for sockets in " + base::quoted(dir) + ": none found");
  }
  std::vector<gms::RemapCheckRequest> requests;
  for (const base::DeviceOrdinal device : devices) {
    gms::RemapCheckRequest request;
    request.socket = gms::resolve_socket(endpoint.socket, dir, device, endpoint.tag);
    request.server_uid = endpoint.server_uid;
    request.map = options.map;
    request.device = device;
    request.driver = options.driver;
    requests.push_back(std::move(request));
  }
  std::vector<gms::LayoutHash> hashes;
  for (const std::string& hash : options.expect_hashes) {
    if (!gms::is_layout_hash(hash)) {
      throw Error(ExitStatus::kUsage,
                  "--expect-hash " + base::quoted(hash) + ": not 64 lower case hexadecimal digits");
    }
    hashes.emplace_back(hash);
  }
  if (!options.hash_file.empty()) {
    hashes = gms::read_hash_file(options.hash_file, requests.size());
  }
  if (hashes.empty()) return requests;
  if (hashes.size() != requests.size()) {
    throw Error(ExitStatus::kUsage, "--expect-hash: " + base::counted(hashes.size(), "hash") +
                                        " for " + base::counted(requests.size(), "socket"));
  }
  for (std::size_t i = 0; i < hashes.size(); ++i) requests[i].expect_hash = hashes[i];
  return requests;
}

}  // namespace fo::gms_remap_check
