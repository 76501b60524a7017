#include "json/dump.h"

#include <nlohmann/json.hpp>

namespace fo::json {

std::string dump(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace fo::json
