// JSON that a peer sent: one object in a text, and one way in which what is wrong with it becomes
// an Error.
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

/// What is not as it should be, thrown while an object is read.
struct Misfit : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws Misfit for more than `max_bytes`, a NUL byte and what is no object, or one that nests so
/// deep that it can't be written out again.
nlohmann::json parse_object(std::string_view text, std::size_t max_bytes);

/// Calls `read` with parse_object's. A Misfit becomes Error(kProtocol): "`what()`: reason"; what
/// the library throws, too, so that a member of another type than `read` took it for is the peer's
/// fault.
void with_object(std::string_view text, std::size_t max_bytes,
                 const std::function<std::string()>& what,
                 const std::function<void(const nlohmann::json&)>& read);

/// The same, for what `read` returns.
template <typename Read>
auto read_object(std::string_view text, std::size_t max_bytes,
                 const std::function<std::string()>& what, const Read& read) {
  std::optional<std::invoke_result_t<const Read&, const nlohmann::json&>> result;
  with_object(text, max_bytes, what,
              [&](const nlohmann::json& object) { result.emplace(read(object)); });
  return *std::move(result);
}

}  // namespace fo::json
