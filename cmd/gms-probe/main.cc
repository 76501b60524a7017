// gms-probe: answer one probe with an exit status.
#include "base/exit_status.h"
#include "cli/app.h"
#include "cli/output.h"
#include "gms/endpoint.h"
#include "gms/probe.h"
#include "options.h"
#include "os/log.h"

namespace {

using namespace fo;
using base::ExitStatus;

int probe_sockets(gms_probe::Options& options) {
  gms::SocketsProbe& probe = options.sockets;
  probe.socket_dir = gms::socket_dir_or_default(probe.socket_dir);
  const gms::SocketsAnswer answer = gms::probe_sockets(probe);
  if (options.common.json) {
    cli::print_line(gms::to_json(answer));
  } else if (answer.yes) {
    cli::print_line(std::to_string(answer.sockets) + " sockets answer");
  }
  // A no is an answer, not an error of ours: -q silences it.
  if (!answer.yes) os::log(os::LogLevel::kWarning, "{}", answer.reason);
  return base::to_int(answer.yes ? ExitStatus::kOk : ExitStatus::kNo);
}

}  // namespace

int main(int argc, char** argv) {
  gms_probe::Options options;
  const cli::Tool tool{.name = "gms-probe",
                       .summary = "Answer one probe with an exit status.",
                       .version = FO_VERSION};
  return cli::run(
      argc, argv, tool, options.common, [&](CLI::App& app) { gms_probe::declare(app, options); },
      [&] { return probe_sockets(options); });
}
