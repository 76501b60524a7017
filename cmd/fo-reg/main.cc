// fo-reg: registers the workers of a fleet, and prints their endpoints, cards and records.
#include "options.h"

int main(int argc, char** argv) {
  using namespace fo;
  fo_reg::Options options;
  const cli::Tool tool{.name = "fo-reg",
                       .summary = "Register the workers of a fleet, and describe what they serve.",
                       .version = FO_VERSION,
                       .takes_command = true,
                       .without_command = {"id", "card", "explain", "put", "rm", "drain", "undrain",
                                           "set", "ls", "get", "watch", "check"}};
  return cli::run(argc, argv, tool, options, fo_reg::declare, [&] {
    fo_reg::check(options);
    return options.run(options);
  });
}
