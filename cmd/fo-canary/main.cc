// fo-canary: checks that the answers of a fleet's engines are still right.
#include "options.h"

int main(int argc, char** argv) {
  using namespace fo;
  fo_canary::Options options;
  const cli::Tool tool{.name = "fo-canary",
                       .summary = "Check that the answers of engines are still right.",
                       .version = FO_VERSION,
                       .is_daemon = true};
  return cli::run(argc, argv, tool, options, fo_canary::declare,
                  [&] { return options.run(options); });
}
