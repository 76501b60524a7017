// A published layout, dropped without a restart of its server. Needs no driver.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/units.h"

namespace fo::weights {

struct UnpublishReport {
  /// What was dropped; 0 and no hash where nothing was published.
  std::int64_t allocations = 0;
  std::string memory_layout_hash;
};

/// Takes the writer's place and leaves it again, which drops what is published or sealed. nullopt
/// when the lock was not to be had in time: somebody reads it, or writes. Errors: those of
/// RpcClient.
std::optional<UnpublishReport> unpublish(const std::string& socket_path,
                                         std::optional<base::Duration> timeout);

/// For people, and as one JSON object.
std::string format_text(const UnpublishReport& report);
std::string format_json(const UnpublishReport& report);

}  // namespace fo::weights
