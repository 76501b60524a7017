// The variables that Kubernetes gives a container, as far as the input tells. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "pod/input_objects.h"
#include "yaml/node.h"

namespace fo::pod {

/// The name in a "$(NAME)" at the front of a text; "" where none is.
std::string_view kubernetes_variable_at(std::string_view text);

/// A text that is longer once its variables are put in counts as unknown.
inline constexpr std::size_t kMaxExpandedBytes = std::size_t{1} << 16;
/// So does each further text once all variables of a container, or all words of a command, have
/// this many bytes.
inline constexpr std::size_t kMaxKnownBytes = std::size_t{1} << 22;

class Environment {
 public:
  /// Of a container's envFrom and env; `name_space` is its pod's, "" where none is said.
  explicit Environment(const yaml::Node& container, const InputObjects& inputs = {},
                       std::string_view name_space = {});

  /// Whether a variable of this name is set, with or without a value that is known.
  [[nodiscard]] bool has(std::string_view name) const { return variables_.contains(name); }
  /// Whether any is whose name begins so.
  [[nodiscard]] bool has_any(std::string_view prefix) const;
  /// As has(), or a Secret or ConfigMap that is not in the input may set it.
  [[nodiscard]] bool may_have(std::string_view name) const { return has_more_ || has(name); }
  /// nullptr where it is not known.
  [[nodiscard]] const std::string* value(std::string_view name) const;
  /// What Kubernetes makes of a command's word, or of a value, with $(NAME) in it; nullopt where
  /// that is not known.
  [[nodiscard]] std::optional<std::string> expanded(std::string_view text) const;

 private:
  void put(const std::string& name, std::optional<std::string> value);
  void take_source(const yaml::Node& source, const InputObjects& inputs,
                   std::string_view name_space);

  std::map<std::string, std::optional<std::string>, std::less<>> variables_;
  // A Secret, or a ConfigMap that is not in the input, sets others.
  bool has_more_ = false;
  std::size_t bytes_ = 0;
};

}  // namespace fo::pod
