#include "fleet/registry/reports.h"

#include <functional>
#include <utility>

#include "base/error.h"
#include "fleet/record/instance.h"
#include "fleet/registry/key.h"
#include "json/object.h"
#include "os/log.h"

namespace fo::fleet {

using Kind = RegistryChange::Kind;

std::optional<bool> counts(const Record& record, const std::string& registry) {
  try {
    const std::string life = checked_life(record);
    return !is_ephemeral(record.key) || parse_life(life) != Life::kGone;
  } catch (const fo::json::Misfit& misfit) {
    os::log(os::LogLevel::kWarning, "registry {}: record {} is ignored: {}", base::quoted(registry),
            base::quoted(record.key), misfit.what());
    return std::nullopt;
  }
}

void RecordReports::put(Record record) {
  const std::optional<bool> is_counted = counts(record, registry_);
  if (!is_counted) return;
  if (!*is_counted) return gone(record.key);
  const std::size_t hash = std::hash<std::string>()(record.text);
  const auto [known, is_new] = reported_.try_emplace(record.key, hash);
  if (!is_new && std::exchange(known->second, hash) == hash) return;
  on_change_({Kind::kPut, std::move(record)});
}

void RecordReports::vanish(const std::string& key) {
  end(key, is_ephemeral(key) ? Kind::kStale : Kind::kGone);
}

void RecordReports::set_unreachable() {
  for (auto& [key, hash] : reported_) {
    if (!hash || !is_ephemeral(key)) continue;
    hash.reset();
    on_change_({Kind::kStale, {key, {}}});
  }
}

void RecordReports::end(const std::string& key, Kind kind) {
  const auto known = reported_.find(key);
  if (known == reported_.end()) return;
  const bool is_already_stale = !known->second && kind == Kind::kStale;
  reported_.erase(known);
  if (!is_already_stale) on_change_({kind, {key, {}}});
}

}  // namespace fo::fleet
