#include "fleet/registry/uri.h"

#include <string_view>

#include "base/error.h"
#include "fleet/registry/dir_registry.h"

namespace fo::fleet {

std::unique_ptr<Registry> make_registry(const std::string& uri) {
  constexpr std::string_view kDir = "dir:";
  const auto refuse = [&](const std::string& reason) {
    return base::Error(base::ExitStatus::kUsage, "registry " + base::quoted(uri) + ": " + reason);
  };
  if (!uri.starts_with(kDir)) throw refuse("expected dir:PATH");
  std::string path = uri.substr(kDir.size());
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (path.empty()) throw refuse("without a path");
  return make_dir_registry(std::move(path));
}

}  // namespace fo::fleet
