// fo-reg: the names of a fleet's endpoints, and the cards of its models.
#include "cli/app.h"
#include "commands.h"
#include "options.h"

namespace {

using namespace fo;
using fo_reg::Options;

base::ExitStatus run(const Options& options) {
  switch (options.command) {
    case Options::Command::kId:
      return fo_reg::id(options);
    case Options::Command::kCard:
      return fo_reg::card(options);
    case Options::Command::kExplain:
      return fo_reg::explain(options);
  }
  return base::ExitStatus::kSoftware;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const cli::Tool tool{.name = "fo-reg",
                       .summary = "Name the endpoints of a fleet and describe its models.",
                       .version = FO_VERSION};
  return cli::run(
      argc, argv, tool, options.common, [&](CLI::App& app) { fo_reg::declare(app, options); },
      [&] {
        fo_reg::check(options);
        return base::to_int(run(options));
      });
}
