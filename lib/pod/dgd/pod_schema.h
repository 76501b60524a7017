// The fields of DGDs of both versions, the fields of their pods that the generator reads, and the
// kinds of their values. Levels below those listed here are not checked. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pod/finding.h"
#include "yaml/node.h"

namespace fo::pod {

/// A type is the name of a list of fields ("Container"), or "str", "int", "bool", "qty" (a
/// quantity, in any form), "port" (a number or a name), "map" (of any values), "[TYPE]" (a list),
/// "{TYPE}" (a map with any keys), or "" (anything).
struct SchemaField {
  std::string_view name;
  std::string_view type;
};

/// The fields of a type; empty for an unknown name.
std::vector<SchemaField> fields_of(std::string_view type);

/// Whether a type has fields that are not listed: the generator passes it through, and the API
/// server knows them.
bool is_open(std::string_view type);

/// Whether values of a wrong kind are errors or are ignored.
enum class WrongKind { kError, kIgnore };

/// Adds a warning for every unknown field of a type that is not open below `node`, which is at
/// `path` and of type `type`, and an error for every value of a wrong kind. A null counts as
/// missing.
void check_schema(const yaml::Node& node, std::string_view type, const std::string& path,
                  WrongKind wrong_kind, Findings& findings);

}  // namespace fo::pod
