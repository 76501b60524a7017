// gms-save: writes a published layout to a snapshot directory.
#include <csignal>

#include "base/error.h"
#include "base/exit_status.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "cuda/device.h"
#include "gms/protocol/endpoint.h"
#include "options.h"
#include "os/process/process.h"
#include "os/process/signals.h"

namespace {

using namespace fo;
using base::ExitStatus;

// Thrown to end a save early: the destructors remove the incomplete snapshot.
struct Interrupted {
  int signal;
};

int save(gms_save::Options& options) {
  weights::SaveOptions& save = options.save;
  const cli::EndpointOptions& endpoint = options.endpoint;
  save.server_uid = endpoint.server_uid;
  save.replace = options.replace ? weights::Replace::kYes : weights::Replace::kNo;
  os::raise_fd_limit();  // two files per shard
  weights::check_snapshot_place(save.folder, save.replace);
  // Otherwise a file size limit would kill the process instead of failing the write.
  std::signal(SIGXFSZ, SIG_IGN);
  // The threads that the driver starts inherit the blocked signals. This thread unblocks them until
  // there is something to remove: until then, a signal ends the process at once.
  const sigset_t signals = os::terminating_signals();
  os::block_signals(signals);
  const auto driver = cuda::Driver::open(options.driver);
  const auto device = cuda::device_info(*driver, endpoint.device);
  const base::UniqueFd signal_fd = os::open_signal_fd(signals);
  os::restore_signals();
  const std::string socket =
      gms::resolve_socket(endpoint.socket, endpoint.socket_dir, device.uuid, endpoint.tag);
  std::optional<weights::SaveReport> report;
  // The progress bar is removed when the block ends, before the process does.
  try {
    cli::Progress progress(options.common.quiet);
    save.on_progress = [&](base::ByteCount done, base::ByteCount total) {
      if (done == 0) os::block_signals(signals);
      if (const int signal = os::read_signal(signal_fd.get())) {
        os::restore_signals();  // a second signal ends the process
        throw Interrupted{signal};
      }
      progress.show(done, total);
    };
    report = weights::save(driver, device, socket, save);
  } catch (const Interrupted& interrupted) {
    return os::die_of_signal(interrupted.signal);
  }
  if (!report) {
    throw base::Error(ExitStatus::kTryAgain,
                      "acquire lock ro of " + base::quoted(socket) + ": timed out");
  }
  cli::print_line(options.common.json ? weights::format_json(*report)
                                      : weights::format_text(*report));
  return base::to_int(ExitStatus::kOk);
}

}  // namespace

int main(int argc, char** argv) {
  gms_save::Options options;
  const cli::Tool tool{.name = "gms-save",
                       .summary = "Write the published layout of a GMS to a snapshot directory.",
                       .version = FO_VERSION};
  return cli::run(argc, argv, tool, options, gms_save::declare, [&] { return save(options); });
}
