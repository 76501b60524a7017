#include "options.h"

#include <CLI/CLI.hpp>

#include "cli/options.h"

namespace fo::fo_gpu {
namespace {

CLI::App* add_command(CLI::App& app, Options& options, Options::Command command, const char* name,
                      const char* description) {
  CLI::App* sub = app.add_subcommand(name, description);
  sub->callback([&options, command] { options.command = command; });
  sub->add_option("--device", options.device, "CUDA device")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str()
      ->type_name("N");
  cli::add_driver(*sub, options.driver);
  return sub;
}

}  // namespace

void declare(CLI::App& app, Options& options) {
  app.require_subcommand(1);
  CLI::App* map_check = add_command(app, options, Options::Command::kMapCheck, "map-check",
                                    "map a published layout and read through the mapping");
  map_check->add_option("--socket", options.socket, "socket of the GMS")
      ->required()
      ->type_name("PATH");
  map_check->add_option("--expect-hash", options.expect_hash, "the layout must have this hash")
      ->type_name("HASH");
  cli::add_duration(*map_check, "--timeout", options.timeout, "for everything");
  add_command(app, options, Options::Command::kFree, "free", "tell a device's free memory");
}

}  // namespace fo::fo_gpu
