#include "options.h"

#include <CLI/CLI.hpp>

#include "base/units.h"
#include "cli/config/variables.h"
#include "cli/options.h"

namespace fo::gms_lockd {

void declare(CLI::App& app, Options& options) {
  lock::LockdConfig& serve = options.serve;
  app.add_option("--socket", serve.socket_path, "serve on this socket")
      ->envname("GMS_LOCKD_SOCKET")
      ->capture_default_str()
      ->type_name("PATH");
  app.add_option("--state", serve.state_path, "the server's state file (default: PATH.state)")
      ->envname("GMS_LOCKD_STATE")
      ->type_name("FILE");
  // Without a window, no holder could reconnect.
  cli::add_positive_duration(app, "--reconnect-window", serve.reconnect_window,
                             "for the holder to reconnect to a new server");
  CLI::Option* const listen =
      app.add_option("--listen", serve.listen, "serve on this port too: leases for other machines")
          ->envname("GMS_LOCKD_LISTEN")
          ->type_name("HOST:PORT");
  cli::add_tls(app, serve.tls.certificate, serve.tls.key);
  cli::add_text(app, "--tls-ca", serve.tls.ca, "the authority of the clients' certificates",
                "FILE");
  cli::add_duration(app, "--expiry", serve.expiry, "of a lease that is not renewed")->needs(listen);
  cli::add_metrics(app, serve.metrics);
  cli::add_ready_fd(app, serve.ready_fd, "clients can connect");
  cli::add_variables(app, {"NOTIFY_SOCKET", "WATCHDOG_*"});
}

}  // namespace fo::gms_lockd
