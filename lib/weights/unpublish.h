// A published layout, dropped without a restart of its server. Needs no driver.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/units.h"

namespace fo::weights {

struct UnpublishReport {
  /// Whether anything was there to be dropped: published or sealed.
  bool dropped = false;
  std::int64_t allocations = 0;
  /// Empty where the server doesn't say.
  std::string memory_layout_hash;
};

/// Takes the writer's place and leaves it again, which drops what is published or sealed. nullopt
/// when the lock was not to be had in time: somebody reads it, or writes. `server_uid` as
/// RpcClient::connect takes it. Errors: those of RpcClient; kProtocol for a hash that is none,
/// before anything is dropped.
std::optional<UnpublishReport> unpublish(const std::string& socket_path,
                                         std::optional<base::Duration> timeout,
                                         std::optional<uid_t> server_uid = std::nullopt);

/// For people, and as one JSON object.
std::string format_text(const UnpublishReport& report);
std::string format_json(const UnpublishReport& report);

}  // namespace fo::weights
