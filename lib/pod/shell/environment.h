// The variables that Kubernetes gives a container, as far as the input defines them. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "pod/input_objects.h"
#include "yaml/node.h"

namespace fo::pod {

/// The name in a "$(NAME)" at the start of a text; "" if there is none.
std::string_view kubernetes_variable_at(std::string_view text);

/// A text that expands to more than this counts as unknown.
inline constexpr std::size_t kMaxExpandedBytes = std::size_t{1} << 16;
/// When all variables of a container, or all words of a command, reach this size, further texts
/// count as unknown.
inline constexpr std::size_t kMaxKnownBytes = std::size_t{1} << 22;

class Environment {
 public:
  /// Reads a container's envFrom and env; `name_space` is its pod's, "" if unknown.
  explicit Environment(const yaml::Node& container, const InputObjects& inputs = {},
                       std::string_view name_space = {});

  /// Whether a variable of this name is set, even with an unknown value.
  [[nodiscard]] bool has(std::string_view name) const { return variables_.contains(name); }
  /// Whether a variable with this prefix is set.
  [[nodiscard]] bool has_any(std::string_view prefix) const;
  /// Whether a variable of this name is set, or may be set by a Secret or ConfigMap that is not in
  /// the input.
  [[nodiscard]] bool may_have(std::string_view name) const { return has_more_ || has(name); }
  /// The value of a variable; nullptr if it is unknown or not set.
  [[nodiscard]] const std::string* value(std::string_view name) const;
  /// The text after Kubernetes' expansion of $(NAME) and "$$", for a word of a command or a value;
  /// nullopt if it is unknown. A reference to a variable that is not set stays.
  [[nodiscard]] std::optional<std::string> expanded(std::string_view text) const;

 private:
  void put(const std::string& name, std::optional<std::string> value);
  void take_source(const yaml::Node& source, const InputObjects& inputs,
                   std::string_view name_space);

  std::map<std::string, std::optional<std::string>, std::less<>> variables_;
  // True if a Secret or ConfigMap that is not in the input sets more variables.
  bool has_more_ = false;
  std::size_t bytes_ = 0;
};

}  // namespace fo::pod
