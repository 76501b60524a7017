#include "options.h"

#include <CLI/CLI.hpp>

#include "cli/options.h"

namespace fo::gms_serve {

void declare(CLI::App& app, Options& options) {
  gms::ServeConfig& serve = options.serve;
  serve.tags = {"weights", "kv_cache"};
  cli::add_socket_dir(app, serve.socket_dir);
  CLI::Option* devices = cli::add_devices(app, serve.devices, "devices to serve");
  CLI::Option* tags = cli::add_tags(app, serve.tags, "one server each, per device");
  CLI::Option* path =
      app.add_option("--socket-path", serve.socket_path, "serve one device and tag on this socket")
          ->type_name("PATH");
  CLI::Option* device = app.add_option("--device", options.device, "the one device")
                            ->check(CLI::Range(0, 1023))
                            ->capture_default_str()
                            ->type_name("N");
  CLI::Option* tag =
      app.add_option("--tag", options.tag, "the one tag")->capture_default_str()->type_name("T");
  device->needs(path);
  tag->needs(path);
  // Not --socket-dir: the environment may set that for every tool.
  path->excludes(devices)->excludes(tags);
  app.add_option("--ready-fd", serve.ready_fd, "write a newline here once all servers answer")
      ->check(CLI::Range(3, 1 << 20))
      ->type_name("N");
  app.add_option("--on-crash", options.on_crash, "restart the server that died, or exit")
      ->check(CLI::IsMember({"restart", "exit"}).description(""))
      ->capture_default_str()
      ->type_name("WHAT");
  app.add_option("--restore", serve.restore, "give a server that has nothing this snapshot")
      ->type_name("DIR");
  app.add_option("--metrics", serve.metrics, "serve Prometheus metrics there")
      ->type_name("HOST:PORT");
  cli::add_duration(app, "--alloc-retry-interval", serve.alloc_retry_interval,
                    "between tries when the device is out of memory");
  cli::add_duration(app, "--alloc-retry-timeout", serve.alloc_retry_timeout,
                    "until an allocation is refused");
  cli::add_driver(app, serve.driver);
}

gms::ServeConfig to_config(const Options& options) {
  gms::ServeConfig config = options.serve;
  config.on_crash = options.on_crash == "exit" ? gms::OnCrash::kExit : gms::OnCrash::kRestart;
  if (!config.socket_path.empty()) {
    config.devices = {options.device};
    config.tags = {options.tag};
  }
  return config;
}

}  // namespace fo::gms_serve
