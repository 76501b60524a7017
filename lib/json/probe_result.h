// The result of a probe as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fo::json {

/// The text of an object with `result`, "yes" or "no", and, if it is "no", `reason`, besides the
/// `members` of this kind of probe.
std::string probe_result(bool yes, const std::string& reason, nlohmann::json members);

}  // namespace fo::json
