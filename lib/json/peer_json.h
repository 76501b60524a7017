// JSON from a peer: one object in a text. Anything invalid becomes an Error in one way.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace fo::json {

/// An invalid value, thrown while an object is read.
struct Misfit : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws Misfit for a text over `max_bytes`, a NUL byte, a text that is not an object, and one
/// nested too deeply to be written out again.
nlohmann::json parse_object(std::string_view text, std::size_t max_bytes);

/// Calls `read` with the result of parse_object. A Misfit becomes Error(kProtocol): "`what()`:
/// reason". So does an exception of the JSON library, for a member of an unexpected type.
void with_object(std::string_view text, std::size_t max_bytes,
                 const std::function<std::string()>& what,
                 const std::function<void(const nlohmann::json&)>& read);

/// The same, returning the result of `read`.
template <typename Read>
auto read_object(std::string_view text, std::size_t max_bytes,
                 const std::function<std::string()>& what, const Read& read) {
  std::optional<std::invoke_result_t<const Read&, const nlohmann::json&>> result;
  with_object(text, max_bytes, what,
              [&](const nlohmann::json& object) { result.emplace(read(object)); });
  return *std::move(result);
}

}  // namespace fo::json
