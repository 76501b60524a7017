// The paths of an engine's API that change the engine, or tell what is for its operator alone: what
// the published address does not let through. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/drivers/driver.h"

namespace fo::engine {

/// The path that the target of a request line names, to be compared: without its query, with no
/// escapes, no empty or dot segments and no slash at its end, in lower case. "*" stands for itself.
/// nullopt for what is no origin form, absolute form or "*", and where it has characters that no
/// path has.
std::optional<std::string> plain_path(std::string_view target);

/// Whether such a path is for the operator of an engine of that kind. So is one that ends in such a
/// path, since engines may be served below a path; but not below /v1/, where models have names.
bool is_control_path(EngineKind kind, std::string_view plain_path);

}  // namespace fo::engine
