// gms-lock: acquires the lock of a failover pair, and shows its state.
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/exit_status.h"
#include "cli/app.h"
#include "cli/screen/output.h"
#include "lock/acquire.h"
#include "lock/grant.h"
#include "lock/lock_status.h"
#include "lock/lock_uri.h"
#include "options.h"
#include "os/process/signals.h"

namespace {

using fo::base::ExitStatus;
using fo::gms_lock::Options;

int acquire(Options& options, std::vector<fo::lock::LockUri> locks) {
  fo::lock::AcquireOptions& wanted = options.acquire;
  wanted.locks = std::move(locks);
  wanted.id = options.id.empty() ? fo::lock::lock_id_from_environment() : options.id;
  wanted.command = options.common.command;
  if (options.nonblock) {
    // A query by another process may hold the lock for an instant; locks across a network need time
    // for requests.
    const bool is_near = std::all_of(wanted.locks.begin(), wanted.locks.end(), fo::lock::is_local);
    wanted.timeout = is_near ? std::chrono::milliseconds(50) : std::chrono::seconds(2);
  }
  const auto end = fo::lock::acquire(wanted, [&](const fo::lock::Grant& grant) {
    fo::cli::print(options.common.json ? fo::lock::to_json(grant) + "\n"
                                       : fo::lock::to_text(grant));
    fo::cli::finish_output();
  });
  return end.signal != 0 ? fo::os::die_of_signal(end.signal) : end.status;
}

int owner(const Options& options, const fo::lock::LockUri& lock) {
  const std::optional<std::string> id = fo::lock::find_owner(lock);
  if (options.common.json) {
    fo::cli::print_line(fo::lock::owner_json(id));
  } else if (id) {
    fo::cli::print_line(*id);
  }
  return fo::base::to_int(id ? ExitStatus::kOk : ExitStatus::kNo);
}

int status(const Options& options, const fo::lock::LockUri& lock) {
  const fo::lock::LockStatus status = fo::lock::read_lock_status(lock);
  fo::cli::print(options.common.json ? fo::lock::to_json(status) + "\n"
                                     : fo::lock::to_text(status));
  return fo::base::to_int(ExitStatus::kOk);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const fo::cli::Tool tool{.name = "gms-lock",
                           .summary = "Become the active engine of a failover pair",
                           .version = FO_VERSION,
                           .takes_command = true,
                           .without_command = {"owner", "status"}};
  return fo::cli::run(argc, argv, tool, options, fo::gms_lock::declare, [&] {
    fo::gms_lock::check(options);
    std::vector<fo::lock::LockUri> locks;
    for (const std::string& uri : options.place().locks) {
      locks.push_back(fo::lock::parse_lock_uri(uri, options.place().kube_api));
    }
    switch (options.command) {
      case Options::Command::kAcquire:
        return acquire(options, std::move(locks));
      case Options::Command::kOwner:
        return owner(options, locks.front());
      case Options::Command::kStatus:
        return status(options, locks.front());
    }
    return fo::base::to_int(ExitStatus::kSoftware);
  });
}
