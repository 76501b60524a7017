#include "json/probe_result.h"

#include <nlohmann/json.hpp>

namespace fo::json {

nlohmann::json probe_result(bool yes, const std::string& reason) {
  nlohmann::json result{{"result", yes ? "yes" : "no"}};
  if (!yes) result["reason"] = reason;
  return result;
}

}  // namespace fo::json
