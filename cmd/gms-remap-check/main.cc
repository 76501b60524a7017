// gms-remap-check: checks that a sleeping engine could wake, and optionally execs it.
#include "base/exit_status.h"
#include "cli/app.h"
#include "cli/screen/output.h"
#include "gms/client/remap_check.h"
#include "options.h"
#include "os/log.h"
#include "os/process/exec.h"
#include "os/socket/status_fd.h"

namespace {

using namespace fo;
using base::ExitStatus;

int check(const gms_remap_check::Options& options) {
  const os::StatusFd status_fd(options.status_fd);
  const auto deadline = base::Deadline::after(options.timeout);
  ExitStatus status = ExitStatus::kOk;
  std::vector<gms::LayoutHash> hashes;
  for (const auto& request : gms_remap_check::to_requests(options)) {
    const gms::RemapCheck check = gms::check_remap(request, deadline);
    hashes.push_back(check.memory_layout_hash);
    const ExitStatus one = gms::exit_status(check.outcome.result);
    if (status == ExitStatus::kOk) status = one;
    // With --exec, the text is logged, because stdout belongs to the command.
    if (options.common.json) {
      cli::print_line(gms::to_json(check));
    } else if (one == ExitStatus::kOk && !options.exec) {
      cli::print_line(gms::to_text(check));
    } else if (one == ExitStatus::kOk) {
      os::log(os::LogLevel::kInfo, "{}", gms::to_text(check));
    }
    if (one != ExitStatus::kOk) os::log_line(os::LogLevel::kError, check.outcome.reason);
  }
  if (status != ExitStatus::kOk) return base::to_int(status);
  if (!options.save_hash.empty()) gms::write_hash_file(options.save_hash, hashes);
  status_fd.write("checked");
  if (options.exec) os::exec_command(options.common.command);
  return base::to_int(ExitStatus::kOk);
}

}  // namespace

int main(int argc, char** argv) {
  gms_remap_check::Options options;
  const cli::Tool tool{.name = "gms-remap-check",
                       .summary = "Check that a sleeping engine could wake.",
                       .version = FO_VERSION,
                       .takes_command = true};
  return cli::run(argc, argv, tool, options, gms_remap_check::declare,
                  [&] { return check(options); });
}
