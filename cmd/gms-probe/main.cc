// gms-probe: answer one probe with an exit status.
#include "base/exit_status.h"
#include "cli/app.h"
#include "cli/output.h"
#include "gms/endpoint.h"
#include "gms/probe.h"
#include "lock/lock_probe.h"
#include "lock/lock_uri.h"
#include "options.h"
#include "os/log.h"

namespace {

using namespace fo;
using base::ExitStatus;

// `text` is for a yes. A no is an answer, not an error of ours: -q silences its reason.
template <typename Answer>
int tell(const Answer& answer, const cli::CommonOptions& common, const std::string& text) {
  if (common.json) {
    cli::print_line(to_json(answer));
  } else if (answer.yes) {
    cli::print_line(text);
  }
  if (!answer.yes) os::log(os::LogLevel::kWarning, "{}", answer.reason);
  return base::to_int(answer.yes ? ExitStatus::kOk : ExitStatus::kNo);
}

int probe_sockets(gms_probe::Options& options) {
  gms::SocketsProbe& probe = options.sockets;
  probe.socket_dir = gms::socket_dir_or_default(probe.socket_dir);
  const gms::SocketsAnswer answer = gms::probe_sockets(probe);
  return tell(answer, options.common, std::to_string(answer.sockets) + " sockets answer");
}

int probe_lock(gms_probe::Options& options) {
  options.lock.lock = lock::parse_lock_uri(options.lock_uri);
  const lock::LockAnswer answer = lock::probe_lock(options.lock);
  const std::string holder = answer.holder.value_or("");
  return tell(answer, options.common,
              !answer.holder   ? "free"
              : holder.empty() ? "held"
                               : "held by " + holder);
}

}  // namespace

int main(int argc, char** argv) {
  gms_probe::Options options;
  const cli::Tool tool{.name = "gms-probe",
                       .summary = "Answer one probe with an exit status.",
                       .version = FO_VERSION};
  return cli::run(
      argc, argv, tool, options.common, [&](CLI::App& app) { gms_probe::declare(app, options); },
      [&] {
        return options.probe == gms_probe::Options::Probe::kLock ? probe_lock(options)
                                                                 : probe_sockets(options);
      });
}
