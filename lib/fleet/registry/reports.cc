#include "fleet/registry/reports.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "fleet/instance.h"
#include "fleet/registry/key.h"
#include "json/object.h"
#include "os/log.h"

namespace fo::fleet {

using Kind = RegistryChange::Kind;

void RecordReports::put(Record record) {
  std::optional<Life> life;
  try {
    const nlohmann::json object = fo::json::parse_object(record.text, kMaxRecordBytes);
    if (const auto fault = fault_in(record.key, object)) throw fo::json::Misfit(*fault);
    if (is_kept_kind(record.key)) life = life_in(object);
  } catch (const fo::json::Misfit& misfit) {
    os::log(os::LogLevel::kWarning, "registry {}: record {} is ignored: {}",
            base::quoted(registry_), base::quoted(record.key), misfit.what());
    return;
  }
  if (life == Life::kGone) return gone(record.key);
  reported_.insert(record.key);
  on_change_({Kind::kPut, std::move(record)});
}

void RecordReports::vanish(const std::string& key) {
  end(key, is_kept_kind(key) ? Kind::kStale : Kind::kGone);
}

void RecordReports::end(const std::string& key, Kind kind) {
  if (reported_.erase(key) > 0) on_change_({kind, {key, {}}});
}

}  // namespace fo::fleet
