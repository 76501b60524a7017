// JSON as text, and from a peer or a file, with limits: its length, and its nesting, which could
// exhaust the stack when a value is copied, compared or printed. Of duplicate keys the last one
// counts. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/exit_status.h"
#include "base/strong.h"

namespace fo::json {

/// Maximum nesting of lists and objects.
inline constexpr int kMaxDepth = 64;

/// An invalid text, or an invalid value in it.
struct Misfit : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The Misfit of a text that is nested too deeply.
struct TooDeep : Misfit {
  using Misfit::Misfit;
};

/// Throws Misfit for a text over `max_bytes`, a NUL byte, nesting beyond kMaxDepth, and a text that
/// is not JSON.
nlohmann::json parse(std::string_view text, base::ByteCount max_bytes);

/// Parses like parse(). Throws Misfit also if the value is not an object.
nlohmann::json parse_object(std::string_view text, base::ByteCount max_bytes);

/// The result of parse_object(); nullopt where that throws Misfit.
std::optional<nlohmann::json> find_object(std::string_view text, base::ByteCount max_bytes);

/// A member of an object; nullptr if it is missing or null, or if `value` is not an object.
const nlohmann::json* find(const nlohmann::json& value, const char* key);

/// A member of an object; empty, or false, if it is missing or null. Throws Misfit if `value` is
/// not an object, and "`key`: expected …" for a member of another type.
const nlohmann::json& object_in(const nlohmann::json& value, const char* key);
const nlohmann::json& list_in(const nlohmann::json& value, const char* key);
std::string text_in(const nlohmann::json& value, const char* key);
bool flag_in(const nlohmann::json& value, const char* key);
/// A non-negative integer member; nullopt if it is missing or null. Throws like text_in.
std::optional<std::uint64_t> number_in(const nlohmann::json& value, const char* key);
/// Like text_in and number_in, but throw Misfit "missing `key`" if the member is missing or null.
std::string needed_text(const nlohmann::json& value, const char* key);
std::uint64_t needed_number(const nlohmann::json& value, const char* key);

/// Calls `read` with the result of parse_object. A Misfit becomes Error(status): "`what()`:
/// reason". So does an exception of the JSON library, for a member of an unexpected type.
void with_object(std::string_view text, base::ByteCount max_bytes,
                 const std::function<std::string()>& what,
                 const std::function<void(const nlohmann::json&)>& read, base::ExitStatus status);

/// Like with_object, and returns the result of `read`.
template <typename Read>
auto read_object(std::string_view text, base::ByteCount max_bytes,
                 const std::function<std::string()>& what, const Read& read,
                 base::ExitStatus status = base::ExitStatus::kProtocol) {
  std::optional<std::invoke_result_t<const Read&, const nlohmann::json&>> result;
  with_object(
      text, max_bytes, what, [&](const nlohmann::json& object) { result.emplace(read(object)); },
      status);
  return *std::move(result);
}

/// The value as JSON; null for nullopt, and for a value that is not `known`. The caller must
/// include nlohmann/json.hpp.
template <typename Value, typename Json = nlohmann::json>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}
template <typename Value, typename Json = nlohmann::json>
Json or_null(bool known, const Value& value) {
  return known ? Json(value) : Json();
}

/// Formats the value on one line, for output that may contain a peer's strings: invalid UTF-8 is
/// replaced.
std::string dump(const nlohmann::json& value);

}  // namespace fo::json
