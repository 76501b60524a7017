// The paths of an engine's API that change the engine, or report what only its operator may see:
// the published address does not forward them. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/drivers/driver.h"

namespace fo::engine {

/// The path in the target of a request line, normalised for comparison: without the query, escapes,
/// empty or dot segments and a final slash, in lower case. "*" stays "*". nullopt for a target that
/// is not origin form, absolute form or "*", or has characters that no path can have.
std::optional<std::string> plain_path(std::string_view target);

/// Whether the path is for the operator of an engine of this kind. A path that ends in such a path
/// counts, too, because engines may be served below a path; except below /v1/, where the rest may
/// be the name of a model.
bool is_control_path(EngineKind kind, std::string_view plain_path);

}  // namespace fo::engine
