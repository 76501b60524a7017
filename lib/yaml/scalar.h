// The characters of scalars, and the meaning of plain scalars in YAML 1.1, as kubectl, Helm and
// kustomize read them: "on" is a boolean, 0644 an octal number and 1e3 a float. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "yaml/node.h"

namespace fo::yaml {

using base::Character;
using base::first_character;

/// Whether every YAML reader accepts the character unescaped, and not as a line break. Tabs and
/// newlines are not printable.
bool is_printable(char32_t code);

enum class ScalarType { kNull, kBoolean, kInteger, kFloat, kTimestamp, kMerge, kString };

/// The type of a scalar's text without quotes.
ScalarType type_of(std::string_view plain_text);

/// Whether a reader reads back the same text, of any type, if the text is written without quotes,
/// on one line and in block style.
bool can_be_plain(std::string_view text);

/// Whether some reader of YAML 1.1 or 1.2 would read the text without quotes as anything but this
/// string, so that a writer must quote it.
bool needs_quotes(std::string_view text);

/// The text in quotes, valid in JSON and YAML. Invalid UTF-8 becomes U+FFFD.
std::string double_quoted(std::string_view text);

/// The text of a scalar that is in quotes, or plain and not a null, boolean or number; nullopt for
/// any other node.
std::optional<std::string> as_string(const Node& node);
/// Whether as_integer reads a number in quotes, as in quantities such as gpu: "1".
enum class Quoted { kNo, kYes };
/// The value of a number without a fraction, in any notation; nullopt for any other node.
std::optional<std::int64_t> as_integer(const Node& node, Quoted quoted = Quoted::kNo);
/// The value of a plain boolean; nullopt for any other node.
std::optional<bool> as_boolean(const Node& node);

/// A scalar as JSON: null, true, 420, 1000, "text". Infinity and NaN, which JSON does not have,
/// become strings.
std::string to_json_scalar(const Node& node);

/// A key as a JSON string. A plain key is converted like a plain scalar: the key of `on: push` is
/// "true".
std::string to_json_key(const Node::Member& member);

}  // namespace fo::yaml
