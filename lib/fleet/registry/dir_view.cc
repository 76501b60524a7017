#include "fleet/registry/dir_view.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "fleet/registry/key.h"
#include "os/log.h"

namespace fo::fleet {

DirView::DirView(const DirStore& store, std::string prefix,
                 std::function<void(const RegistryChange&)> on_change,
                 std::function<void(const std::string&)> on_folder)
    : store_(store),
      prefix_(std::move(prefix)),
      on_folder_(std::move(on_folder)),
      reports_("dir:" + store.path(), std::move(on_change)) {}

void DirView::compare_all() {
  // A stale record is not present again before all folders can be read.
  if (is_unreachable_) store_.walk("", prefix_, on_folder_, [](const DirStore::RecordPath&) {});
  is_unreachable_ = false;
  ++round_;
  store_.walk("", prefix_, on_folder_,
              [this](const DirStore::RecordPath& record_path) { compare(record_path); });
  for (auto seen = known_.begin(); seen != known_.end();) {
    const auto next = std::next(seen);
    if (seen->second.round != round_) vanish(seen);
    seen = next;
  }
}

void DirView::set_unreachable() {
  is_unreachable_ = true;
  reports_.set_unreachable();
  for (auto& [key, seen] : known_) seen.stamp = {};
}

bool DirView::refresh(const std::string& key) {
  if (!key.starts_with(prefix_) || !is_key(key)) return false;
  return compare(store_.record_path_of(key));
}

bool DirView::compare(const DirStore::RecordPath& record_path) {
  const std::string key(record_path.key);
  try {
    const std::optional<DirStore::Entry> entry = store_.find(record_path);
    if (!entry) {
      const auto vanished = known_.find(key);
      if (vanished != known_.end()) vanish(vanished);
      return false;
    }
    const auto [at, is_new] = known_.try_emplace(key);
    Seen& seen = at->second;
    seen.round = round_;
    const bool is_same = !is_new && seen.stamp == entry->stamp && seen.is_alive == entry->is_alive;
    seen.stamp = entry->stamp;
    seen.is_alive = entry->is_alive;
    if (is_same) return entry->is_alive;
    if (entry->is_alive) {
      reports_.put({key, store_.read(*entry, key)});
    } else {
      reports_.gone(key);
    }
    return entry->is_alive;
  } catch (const base::Error& error) {
    // A record that cannot be read has not vanished.
    const auto unread = known_.find(key);
    if (unread != known_.end()) unread->second = {{}, unread->second.is_alive, round_};
    log_limit_.log(os::LogLevel::kWarning, error.what(), error.what());
    return true;
  }
}

// A process that ends leaves its record, so a record whose file is missing was removed by another
// process, or with the whole registry.
void DirView::vanish(Known::iterator seen) {
  reports_.vanish(seen->first);
  known_.erase(seen);
}

}  // namespace fo::fleet
