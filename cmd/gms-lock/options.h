// The command line of gms-lock.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "lock/acquire.h"

namespace CLI {
class App;
}

namespace fo::gms_lock {

struct Options {
  enum class Command { kAcquire, kOwner, kStatus };
  Command command = Command::kAcquire;
  /// As they were given.
  struct Place {
    std::vector<std::string> locks;
    std::string kube_api;
  };
  /// By command: CLI11 sets the environment's value for those that were not given, too.
  std::array<Place, 3> places;
  [[nodiscard]] const Place& place() const { return places[static_cast<std::size_t>(command)]; }
  /// Empty: from ENGINE_ID.
  std::string id;
  bool nonblock = false;
  /// Locks, id and command are filled in by the body.
  lock::AcquireOptions acquire;
};

void declare(CLI::App& app, Options& options);

/// What the command line as a whole must not say. Throws Error(kUsage).
void check(const Options& options, const std::vector<std::string>& command);

}  // namespace fo::gms_lock
