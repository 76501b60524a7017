// Drops a published layout without a restart of its server. Needs no driver.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/units.h"
#include "gms/protocol/types.h"

namespace fo::weights {

struct UnpublishReport {
  /// Whether a layout, published or sealed, was dropped.
  bool dropped = false;
  std::int64_t allocations = 0;
  /// Empty if the server does not report it.
  gms::LayoutHash memory_layout_hash;
};

/// Becomes the writer and disconnects, which drops a published or sealed layout. nullopt if the
/// lock was not granted in time because of a reader or writer. `server_uid` as RpcClient::connect
/// takes it. Throws what RpcClient throws, and kProtocol for an invalid hash, before anything is
/// dropped.
std::optional<UnpublishReport> unpublish(const std::string& socket_path,
                                         std::optional<base::Duration> timeout,
                                         std::optional<uid_t> server_uid = std::nullopt);

/// Format the report as text, and as one JSON object.
std::string format_text(const UnpublishReport& report);
std::string format_json(const UnpublishReport& report);

}  // namespace fo::weights
