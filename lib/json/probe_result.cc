#include "json/probe_result.h"

#include <nlohmann/json.hpp>

#include "json/object.h"

namespace fo::json {

std::string probe_result(bool yes, const std::string& reason, nlohmann::json members) {
  members["result"] = yes ? "yes" : "no";
  if (!yes) members["reason"] = reason;
  return dump(members);
}

}  // namespace fo::json
