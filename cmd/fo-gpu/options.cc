#include "options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "cli/config/variables.h"
#include "cli/options.h"

namespace fo::fo_gpu {
namespace {

// Adds a command that uses the CUDA driver.
CLI::App* add_driver_command(CLI::App& app, Options& options, Options::Command command,
                             const char* name, const char* description) {
  CLI::App* sub = cli::add_command(app, options.command, command, name, description);
  cli::add_device(*sub, options.device, "CUDA device");
  cli::add_driver(*sub, options.driver);
  cli::add_variables(*sub, {"CUDA_VISIBLE_DEVICES", "GMS_SIM_*"});
  return sub;
}

// Checks that the text has only characters of a driver's UUID, which are valid in JSON without an
// escape. Returns an empty string, or the reason for CLI11.
std::string is_uuid(const std::string& text) {
  const bool good = !text.empty() && text.size() <= 80 &&
                    std::all_of(text.begin(), text.end(), [&](unsigned char c) {
                      return std::isalnum(c) != 0 || c == '-' || c == '/';
                    });
  return good ? std::string() : base::quoted(text) + " is not a uuid";
}

void add_uuid(CLI::App& app, Options& options, const char* description) {
  app.add_option_function<std::string>(
         "--uuid", [&options](const std::string& text) { options.uuid = base::GpuUuid(text); },
         description)
      ->check(is_uuid)
      ->type_name("UUID");
}

}  // namespace

void declare(CLI::App& app, Options& options) {
  app.require_subcommand(1);
  CLI::App* map_check = add_driver_command(app, options, Options::Command::kMapCheck, "map-check",
                                           "map a published layout and read through the mapping");
  map_check->add_option("--socket", options.socket, "socket of the GMS")
      ->required()
      ->type_name("PATH");
  cli::add_server_uid(*map_check, options.server_uid);
  map_check->add_option("--expect-hash", options.expect_hash, "the layout must have this hash")
      ->type_name("HASH");
  cli::add_duration(*map_check, "--timeout", options.map_timeout, "limit for the whole check");
  CLI::App* free = add_driver_command(app, options, Options::Command::kFree, "free",
                                      "print a device's free memory, without a CUDA context");
  add_uuid(*free, options, "the device's UUID, if known: skips the driver");
  CLI::Option* until =
      cli::add_size(*free, "--until-free", options.until_free, "wait until this much is free");
  cli::add_duration(*free, "--timeout", options.free_timeout,
                    "limit for --until-free; default: none")
      ->needs(until);
  CLI::App* health =
      cli::add_command(app, options.command, Options::Command::kHealth, "health",
                       "print NVML's counters of faults; exit 1 if a GPU needs service");
  add_uuid(*health, options, "only this GPU");
}

}  // namespace fo::fo_gpu
