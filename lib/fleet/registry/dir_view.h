// Compares a registry's folder with the records that a watcher has seen, and reports the changes.
// It never waits for a lock.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>

#include "fleet/registry/dir_store.h"
#include "fleet/registry/registry.h"
#include "fleet/registry/reports.h"
#include "os/log_limit.h"

namespace fo::fleet {

class DirView {
 public:
  /// Reports records whose keys begin with `prefix`. `on_folder` is called for each folder that may
  /// contain such records, before it is read. The store outlives this object.
  DirView(const DirStore& store, std::string prefix,
          std::function<void(const RegistryChange&)> on_change,
          std::function<void(const std::string& folder)> on_folder);

  /// Compares the whole registry with the records that were seen before. Throws what
  /// DirStore::walk() throws; records that were not compared then have not vanished.
  void compare_all();
  /// Reports the records of processes as stale until the next comparison.
  void set_unreachable();
  /// Compares one record. Returns false if it does not exist or its process has ended; true also if
  /// it cannot be read.
  bool refresh(const std::string& key);

 private:
  struct Seen {
    DirStore::Stamp stamp;
    bool is_alive = false;
    unsigned round = 0;
  };
  using Known = std::unordered_map<std::string, Seen>;

  bool compare(const DirStore::RecordPath& record_path);
  void vanish(Known::iterator seen);

  const DirStore& store_;
  const std::string prefix_;
  const std::function<void(const std::string&)> on_folder_;
  Known known_;
  RecordReports reports_;
  unsigned round_ = 0;
  bool is_unreachable_ = false;
  os::LogLimit log_limit_;
};

}  // namespace fo::fleet
