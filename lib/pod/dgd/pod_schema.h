// The fields that DGDs of both versions, and the pods in them, are known to have, and the kinds of
// their values; past the levels named here nothing is known, and nothing is said. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pod/finding.h"
#include "yaml/node.h"

namespace fo::pod {

/// A type is the name of a map's fields ("Container"), or "str", "int", "bool", "qty" (a
/// quantity), "port" (a number or a name), "map" (of anything), "[TYPE]" (a list), "{TYPE}" (a map
/// of values by any key), or "" (anything).
struct SchemaField {
  std::string_view name;
  std::string_view type;
};

/// Of a type by name; none of any other.
std::vector<SchemaField> fields_of(std::string_view type);

/// Values of a wrong kind are errors, or somebody else's to judge.
enum class WrongKind { kError, kIgnore };

/// Adds a warning for every unknown field below `node`, which is at `path` and of that type, and an
/// error for every value of a wrong kind. A null is as good as none.
void check_schema(const yaml::Node& node, std::string_view type, const std::string& path,
                  WrongKind wrong_kind, Findings& findings);

}  // namespace fo::pod
