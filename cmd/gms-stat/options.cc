#include "options.h"

#include <CLI/CLI.hpp>

#include "cli/options.h"

namespace fo::gms_stat {

void declare(CLI::App& app, Options& options) {
  cli::add_endpoint(app, options.endpoint);
  CLI::Option* all = app.add_flag("--all", options.all, "every GMS of the folder, one line each");
  CLI::Option* events = app.add_flag("--events", options.stat.events, "show what happened lately");
  CLI::Option* list = app.add_flag("--list", options.stat.list,
                                   "show allocations and tensors, if no writer is in the way");
  for (const char* one : {"--socket", "--device", "--tag"}) all->excludes(app.get_option(one));
  all->excludes(events)->excludes(list);
  cli::add_duration(app, "--timeout", options.timeout, "for everything");
}

}  // namespace fo::gms_stat
