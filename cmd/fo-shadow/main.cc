// fo-shadow: drives one engine of a failover pair, which sleeps until it is needed.
#include "base/exit_status.h"
#include "cli/app.h"
#include "cli/screen/output.h"
#include "engine/pair.h"
#include "engine/shadow/shadow.h"
#include "lock/lock_status.h"
#include "lock/lock_uri.h"
#include "options.h"

namespace {

using fo::base::ExitStatus;
using fo::fo_shadow::Options;

int status(const Options& options) {
  const auto pair = fo::engine::read_pair(fo::lock::parse_local_lock_uri(options.pair_lock()));
  fo::cli::print(options.common.json ? pair.json + "\n" : pair.text);
  return fo::base::to_int(pair.active ? ExitStatus::kOk : ExitStatus::kNo);
}

int switch_over(const Options& options) {
  const auto deadline = fo::base::Deadline::after(options.timeout);
  const fo::lock::LockUri lock = fo::lock::parse_local_lock_uri(options.pair_lock());
  const std::string active = fo::engine::switch_over(lock, deadline);
  fo::cli::print_line(options.common.json ? fo::lock::owner_json(active) : active);
  return fo::base::to_int(ExitStatus::kOk);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const fo::cli::Tool tool{.name = "fo-shadow",
                           .summary = "Drive one engine of a failover pair.",
                           .version = FO_VERSION,
                           .takes_command = true,
                           .without_command = {"status", "switchover"},
                           .is_daemon = true};
  return fo::cli::run(argc, argv, tool, options, fo::fo_shadow::declare, [&] {
    switch (options.command) {
      case Options::Command::kStatus:
        return status(options);
      case Options::Command::kSwitchOver:
        return switch_over(options);
      case Options::Command::kRun:
        break;
    }
    return fo::engine::run_shadow(fo::fo_shadow::to_shadow_options(options));
  });
}
