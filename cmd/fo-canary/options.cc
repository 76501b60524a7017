#include "options.h"

#include <CLI/CLI.hpp>

#include "cli/options.h"
#include "cli/variables.h"
#include "commands.h"

namespace fo::fo_canary {
namespace {

void declare_registry(CLI::App& app, Options& options) {
  app.add_option("--registry", options.registry, "the registry's URI")
      ->envname("FO_REGISTRY")
      ->capture_default_str()
      ->type_name("URI");
  app.add_option("--state-registry", options.state_registry,
                 "for verdicts, where workers are only read")
      ->envname("FO_STATE_REGISTRY")
      ->type_name("URI");
  cli::add_variables(app, {"KUBERNETES_SERVICE_*"});
}

void declare_acquit(CLI::App& app, Options& options) {
  app.add_option("ID", options.id, "the worker")->required()->type_name("ID");
  declare_registry(app, options);
  cli::add_duration(app, "--timeout", options.timeout, "how long the registry may take");
}

struct Command {
  const char* name;
  const char* description;
  void (*declare)(CLI::App& app, Options& options);
  int (*run)(const Options& options);
};

constexpr Command kCommands[] = {
    {"acquit", "lift the convictions of a worker; exit 1 without any", declare_acquit, acquit},
};

}  // namespace

void declare(CLI::App& app, Options& options) {
  app.require_subcommand(1);
  for (const Command& command : kCommands) {
    CLI::App* const sub = app.add_subcommand(command.name, command.description);
    sub->callback([&options, &command] { options.run = command.run; });
    command.declare(*sub, options);
  }
}

std::unique_ptr<fleet::Registry> open_registry(const Options& options) {
  return fleet::make_registry(options.registry, options.state_registry);
}

}  // namespace fo::fo_canary
