// Nodes as text. The same node gives the same bytes.
#pragma once

#include <string>

#include "yaml/node.h"

namespace fo::yaml {

/// Block style, indented by two, lists at the level of their key, as kubectl writes them; strings
/// quoted where any reader would take them for something else, those of several lines as block
/// scalars where they can be. No "---". A plain scalar of the input is written as it was.
std::string to_yaml(const Node& node);

/// Indented by two, with a newline at the end.
std::string to_json(const Node& node);

}  // namespace fo::yaml
