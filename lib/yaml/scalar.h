// What a plain scalar means to those who read YAML by version 1.1, as kubectl, Helm and kustomize
// do: "on" is a boolean there, 0644 an octal number and 1e3 a float. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "yaml/node.h"

namespace fo::yaml {

enum class ScalarType { kNull, kBoolean, kInteger, kFloat, kTimestamp, kMerge, kString };

/// Of a scalar's text, had it no quotes.
ScalarType type_of(std::string_view plain_text);

/// Whether a text can stand without quotes, on one line and in block style, and be read as it is,
/// whatever it then means.
bool can_be_plain(std::string_view text);

/// Whether some reader, of YAML 1.1 or 1.2, would take this text without quotes for anything but
/// this string, or for no scalar at all: then a writer has to quote it.
bool needs_quotes(std::string_view text);

/// In quotes as JSON and YAML both read them. What is no UTF-8 becomes U+FFFD.
std::string double_quoted(std::string_view text);

/// A scalar that is a string. A plain one that means something else is none.
std::optional<std::string> as_string(const Node& node);
/// A number without a fraction, in any notation; also one in quotes, where `quoted` says so (as
/// quantities such as gpu: "1" are).
enum class Quoted { kNo, kYes };
std::optional<std::int64_t> as_integer(const Node& node, Quoted quoted = Quoted::kNo);
std::optional<bool> as_boolean(const Node& node);

/// How a scalar reads as JSON: null, true, 420, 1000, "text". Infinity and NaN, of which JSON knows
/// nothing, are strings.
std::string to_json_scalar(const Node& node);

/// A key as JSON's readers get it: that of `on: push` is "true".
std::string to_json_key(const Node::Member& member);

}  // namespace fo::yaml
