// gms-serve: owns GPU memory of one or more devices and lends it to other processes.
#include "options.h"

int main(int argc, char** argv) {
  using namespace fo;
  gms_serve::Options options;
  const cli::Tool tool{.name = "gms-serve",
                       .summary = "Own GPU memory and lend it to other processes.",
                       .version = FO_VERSION,
                       .is_daemon = true};
  return cli::run(argc, argv, tool, options, gms_serve::declare,
                  [&] { return gms::serve(gms_serve::to_config(options)); });
}
