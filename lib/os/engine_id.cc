#include "os/engine_id.h"

#include <cstdlib>

#include "base/error.h"
#include "base/units.h"

namespace fo::os {

std::uint64_t engine_id_from_environment() {
  const char* text = std::getenv("ENGINE_ID");
  const auto id = base::parse_uint(text == nullptr ? "0" : text);
  if (!id) {
    throw base::Error(base::ExitStatus::kConfig,
                      "read ENGINE_ID " + base::quoted(text) + ": not a non-negative number");
  }
  return *id;
}

}  // namespace fo::os
