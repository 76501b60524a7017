// Received KV caches in host memory, until a request uses them: their total size is limited, and
// each is kept for a limited time. For one thread.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/strong.h"
#include "refengine/kv/kv_snapshot.h"

namespace fo::refengine {

class KvStore {
 public:
  using Time = base::Deadline::Clock::time_point;
  static constexpr auto kKeepTime = std::chrono::seconds(60);

  explicit KvStore(base::ByteCount max_bytes) : max_bytes_(max_bytes) {}

  /// Reserves memory until the result is destroyed; nullptr without room. Snapshots that were kept
  /// for too long are removed first.
  std::shared_ptr<void> reserve(base::ByteCount bytes, Time now);

  /// Keeps a snapshot and returns its id.
  std::string keep(std::shared_ptr<const KvSnapshot> snapshot, Time now);
  /// nullptr for an unknown id, or if the snapshot was kept for too long.
  [[nodiscard]] std::shared_ptr<const KvSnapshot> find(const std::string& id, Time now) const;
  void remove(const std::string& id) { kept_.erase(id); }

 private:
  struct Kept {
    std::shared_ptr<const KvSnapshot> snapshot;
    Time until;
  };

  base::ByteCount max_bytes_;
  // Shared with the reservations, which may outlive the store.
  std::shared_ptr<base::ByteCount> used_ = std::make_shared<base::ByteCount>(0);
  std::map<std::string, Kept> kept_;
};

}  // namespace fo::refengine
