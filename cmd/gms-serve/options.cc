#include "options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/units.h"
#include "cli/config/variables.h"
#include "cli/options.h"

namespace fo::gms_serve {
namespace {

// Adds an option for user or group ids, separated by commas. Only numbers are accepted, because a
// name may have another id in each container.
void add_ids(CLI::App& app, const std::string& name, std::vector<std::uint32_t>& ids,
             const std::string& description) {
  app.add_option_function<std::string>(
         name,
         [&ids, name](const std::string& text) {
           ids.clear();
           for (std::size_t at = 0; at <= text.size();) {
             const std::size_t end = std::min(text.find(',', at), text.size());
             const std::string part = text.substr(at, end - at);
             const std::optional<std::uint32_t> id = base::parse_id(part);
             if (!id) {
               throw CLI::ValidationError(name, "'" + part + "' is not a user or group id");
             }
             ids.push_back(*id);
             at = end + 1;
           }
         },
         description)
      ->type_name("N,...");
}

void add_mode(CLI::App& app, const std::string& name, mode_t& mode,
              const std::string& description) {
  app.add_option_function<std::string>(
         name,
         [&mode, name](const std::string& text) {
           const bool is_octal = !text.empty() && text.size() <= 4 &&
                                 text.find_first_not_of("01234567") == std::string::npos;
           const unsigned long value = is_octal ? std::stoul(text, nullptr, 8) : ~0UL;
           if (value > 0777) {
             throw CLI::ValidationError(name, "'" + text + "' is not octal, 0 to 0777");
           }
           mode = static_cast<mode_t>(value);
         },
         description)
      ->default_str("0600")
      ->type_name("MODE");
}

}  // namespace

void declare(CLI::App& app, Options& options) {
  gms::ServeConfig& serve = options.serve;
  serve.tags = {"weights", "kv_cache"};
  cli::add_socket_dir(app, serve.socket_dir);
  CLI::Option* devices = cli::add_devices(app, serve.devices, "devices to serve");
  CLI::Option* tags =
      cli::add_tags(app, serve.tags, "tags to serve, one server per device and tag");
  CLI::Option* path =
      app.add_option("--socket-path", serve.socket_path, "serve one device and tag on this socket")
          ->type_name("PATH");
  CLI::Option* device = cli::add_device(app, options.device, "device of --socket-path");
  CLI::Option* tag = app.add_option("--tag", options.tag, "tag of --socket-path")
                         ->capture_default_str()
                         ->type_name("T");
  device->needs(path);
  tag->needs(path);
  // --socket-dir is not excluded, because the environment may set it for every tool.
  path->excludes(devices)->excludes(tags);
  cli::add_ready_fd(app, serve.ready_fd, "all servers answer");
  add_ids(app, "--allow-uid", serve.access.uids, "other users whose processes may connect");
  add_ids(app, "--allow-gid", serve.access.gids, "groups whose members may connect");
  add_mode(app, "--socket-mode", serve.socket_mode, "permissions of the sockets");
  cli::add_choice(app, "--on-crash", serve.on_crash,
                  {{"restart", gms::OnCrash::kRestart}, {"exit", gms::OnCrash::kExit}},
                  "restart a server that crashed, or exit", "WHAT");
  app.add_option("--restore", serve.restore, "load this snapshot into a server without a layout")
      ->type_name("DIR");
  cli::add_metrics(app, serve.metrics);
  cli::add_duration(app, "--alloc-retry-interval", serve.alloc_retry_interval,
                    "between attempts when the device is out of memory");
  cli::add_duration(app, "--alloc-retry-timeout", serve.alloc_retry_timeout,
                    "until an allocation is refused");
  cli::add_driver(app, serve.driver);
  cli::add_variables(app, {"CUDA_VISIBLE_DEVICES", "GMS_SIM_*", "NOTIFY_SOCKET", "TMPDIR"});
}

gms::ServeConfig to_config(const Options& options) {
  gms::ServeConfig config = options.serve;
  if (!config.socket_path.empty()) {
    config.devices = {options.device};
    config.tags = {options.tag};
  }
  return config;
}

}  // namespace fo::gms_serve
