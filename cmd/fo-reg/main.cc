// fo-reg: the workers of a fleet: their endpoints, their cards and their records.
#include "cli/app.h"
#include "commands.h"
#include "options.h"

namespace {

using namespace fo;
using base::to_int;
using fo_reg::Options;

int dispatch(const Options& options) {
  using enum Options::Command;
  switch (options.command) {
    case kId:
      return to_int(fo_reg::id(options));
    case kCard:
      return to_int(fo_reg::card(options));
    case kExplain:
      return to_int(fo_reg::explain(options));
    case kRun:
      return fo_reg::run(options);
    case kPut:
      return to_int(fo_reg::put(options));
    case kRm:
      return to_int(fo_reg::rm(options));
    case kDrain:
      return to_int(fo_reg::drain(options));
    case kUndrain:
      return to_int(fo_reg::undrain(options));
    case kSet:
      return to_int(fo_reg::set(options));
    case kLs:
      return to_int(fo_reg::ls(options));
    case kGet:
      return to_int(fo_reg::get(options));
    case kWatch:
      return to_int(fo_reg::watch(options));
    case kCheck:
      return to_int(fo_reg::check_registry(options));
  }
  return to_int(base::ExitStatus::kSoftware);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const cli::Tool tool{.name = "fo-reg",
                       .summary = "Register the workers of a fleet, and describe what they serve.",
                       .version = FO_VERSION,
                       .takes_command = true,
                       .without_command = {"id", "card", "explain", "put", "rm", "drain", "undrain",
                                           "set", "ls", "get", "watch", "check"}};
  return cli::run(
      argc, argv, tool, options.common, [&](CLI::App& app) { fo_reg::declare(app, options); },
      [&] {
        fo_reg::check(options);
        return dispatch(options);
      });
}
