// The members that the results of all probes have in common.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fo::json {

/// An object with `result`, "yes" or "no", and, if it is "no", `reason`.
nlohmann::json probe_result(bool yes, const std::string& reason);

}  // namespace fo::json
