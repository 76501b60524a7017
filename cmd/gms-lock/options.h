// The command line of gms-lock.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cli/app.h"
#include "lock/acquire.h"

namespace fo::gms_lock {

struct Options {
  enum class Command { kAcquire, kOwner, kStatus };
  cli::CommonOptions common;
  Command command = Command::kAcquire;
  /// The locks of one command.
  struct Place {
    std::vector<std::string> locks;
    std::string kube_api;
  };
  /// One per command, because CLI11 also sets the environment's value for commands that were not
  /// given.
  std::array<Place, 3> places;
  [[nodiscard]] const Place& place() const { return places[static_cast<std::size_t>(command)]; }
  /// Empty: from ENGINE_ID.
  std::string id;
  bool nonblock = false;
  /// The caller sets locks, id and command.
  lock::AcquireOptions acquire;
};

void declare(CLI::App& app, Options& options);

/// Checks combinations of options. Throws Error(kUsage).
void check(const Options& options);

}  // namespace fo::gms_lock
