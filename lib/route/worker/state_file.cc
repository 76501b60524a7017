#include "route/worker/state_file.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "fleet/state_file.h"

namespace fo::route {

void load_state(RegistrySource& source, const std::string& path) {
  fleet::load_state(path, RegistrySource::kMaxSavedBytes,
                    [&source](const std::string& text) { source.load(text); });
}

boost::asio::awaitable<void> save_state(const RegistrySource& source, std::string path) {
  const auto changed = [&source, saved = source.changes()]() mutable -> std::optional<std::string> {
    if (!source.is_listed() || source.changes() == saved) return std::nullopt;
    saved = source.changes();
    return source.save();
  };
  return fleet::keep_state(std::move(path), changed);
}

}  // namespace fo::route
