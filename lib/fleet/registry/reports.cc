#include "fleet/registry/reports.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "fleet/instance.h"
#include "fleet/registry/key.h"
#include "os/log.h"

namespace fo::fleet {

using Kind = RegistryChange::Kind;

void RecordReports::put(Record record) {
  if (const std::optional<std::string> fault = fault_of(record)) {
    os::log(os::LogLevel::kWarning, "registry {}: record {} is ignored: {}",
            base::quoted(registry_), base::quoted(record.key), *fault);
  } else if (is_kept_kind(record.key) && life_of(record.text) == Life::kGone) {
    gone(record.key);
  } else {
    reported_.insert(record.key);
    on_change_({Kind::kPut, std::move(record)});
  }
}

void RecordReports::vanish(const std::string& key) {
  end(key, is_kept_kind(key) ? Kind::kStale : Kind::kGone);
}

void RecordReports::end(const std::string& key, Kind kind) {
  if (reported_.erase(key) > 0) on_change_({kind, {key, {}}});
}

}  // namespace fo::fleet
