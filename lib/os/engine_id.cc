#include "os/engine_id.h"

#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/units.h"

namespace fo::os {

std::uint64_t engine_id_from_environment() {
  const char* value = std::getenv("ENGINE_ID");
  const std::string_view text = value == nullptr ? "0" : value;
  const auto id = base::parse_uint(text);
  if (!id) {
    throw base::Error(base::ExitStatus::kConfig,
                      "read ENGINE_ID " + base::quoted(text) + ": not a non-negative number");
  }
  return *id;
}

}  // namespace fo::os
