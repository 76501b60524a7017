// gms-lockd: serves the lock of a failover pair to the connections of its clients.
#include "options.h"

int main(int argc, char** argv) {
  using namespace fo;
  gms_lockd::Options options;
  const cli::Tool tool{.name = "gms-lockd",
                       .summary = "Serve the lock of a failover pair.",
                       .version = FO_VERSION,
                       .is_daemon = true};
  return cli::run(argc, argv, tool, options, gms_lockd::declare,
                  [&] { return lock::serve_lock(options.serve); });
}
