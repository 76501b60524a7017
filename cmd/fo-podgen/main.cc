// fo-podgen: generates the manifests of a failover pod from a DynamoGraphDeployment.
#include "cli/app.h"
#include "commands.h"
#include "options.h"

namespace {

using namespace fo;
using fo_podgen::Options;

base::ExitStatus run(Options& options) {
  fo_podgen::check_usage(options);
  switch (options.command) {
    case Options::Command::kCheck:
      return fo_podgen::check(options);
    case Options::Command::kDiff:
      return fo_podgen::diff(options);
    case Options::Command::kInstall:
      return fo_podgen::install(options);
    case Options::Command::kGenerate:
      break;
  }
  return fo_podgen::generate(options);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const cli::Tool tool{.name = "fo-podgen",
                       .summary = "Turn DynamoGraphDeployments into failover pods.",
                       .version = FO_VERSION};
  return cli::run(
      argc, argv, tool, options.common, [&](CLI::App& app) { fo_podgen::declare(app, options); },
      [&] { return base::to_int(run(options)); });
}
