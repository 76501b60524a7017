#include "options.h"

#include <CLI/CLI.hpp>

#include "cli/config/variables.h"
#include "cli/options.h"

namespace fo::gms_stat {
namespace {

// The value of --watch; without one, a second. Shorter intervals are refused.
base::Duration interval(const std::string& text) {
  constexpr base::Duration kMin = std::chrono::milliseconds(100);
  if (text.empty()) return std::chrono::seconds(1);
  const base::Duration read = cli::read_duration("--watch", text);
  if (read < kMin) {
    throw CLI::ValidationError("--watch",
                               "'" + text + "' is less than " + base::format_duration(kMin));
  }
  return read;
}

}  // namespace

void declare(CLI::App& app, Options& options) {
  cli::add_endpoint(app, options.endpoint);
  CLI::Option* all = app.add_flag("--all", options.all, "every GMS of the folder, one line each");
  CLI::Option* events = app.add_flag("--events", options.stat.events, "show recent events");
  CLI::Option* list = app.add_flag("--list", options.stat.list,
                                   "show allocations and tensors, unless a writer is active");
  for (const char* one : {"--socket", "--device", "--tag"}) all->excludes(app.get_option(one));
  all->excludes(events)->excludes(list);
  CLI::Option* watch =
      app.add_option_function<std::string>(
             "--watch", [&](const std::string& text) { options.watch = interval(text); },
             "repeat every DURATION (1s) and show changes")
          ->expected(0, 1)
          ->type_name("[DURATION]");
  watch->excludes(events)->excludes(list);
  CLI::Option* holders =
      app.add_flag("--holders", options.holders, "show which processes hold the device's memory");
  for (const char* one : {"--socket", "--tag", "--server-uid"})
    holders->excludes(app.get_option(one));
  holders->excludes(all)->excludes(events)->excludes(list)->excludes(watch);
  app.add_option("--server", options.servers, "for --holders: a server outside the folder, too")
      ->delimiter(',')
      ->type_name("PATH,...")
      ->needs(holders);
  cli::add_driver(app, options.driver);
  cli::add_duration(app, "--timeout", options.timeout,
                    "limit for the whole query, or for each repetition");
  cli::add_variables(app, {"GMS_SIM_*", "NO_COLOR", "TERM", "TMPDIR"});
}

}  // namespace fo::gms_stat
