// Writes nodes as text. Equal nodes give equal bytes.
#pragma once

#include <string>

#include "yaml/node.h"

namespace fo::yaml {

/// Writes block style like kubectl, indented by two, with lists at the level of their key. Strings
/// are quoted if any reader would read them as another type, and strings of several lines are block
/// scalars if possible. There is no "---". Plain scalars of the input keep their text.
std::string to_yaml(const Node& node);

/// Writes JSON, indented by two, with a newline at the end.
std::string to_json(const Node& node);

}  // namespace fo::yaml
