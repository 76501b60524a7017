// The variables that Kubernetes gives a container, as far as the input tells. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "pod/config_maps.h"
#include "pod/node.h"

namespace fo::pod {

class Environment {
 public:
  /// Of a container's envFrom and env; `name_space` is its pod's, "" where none is said.
  explicit Environment(const Node& container, const ConfigMaps& config_maps = {},
                       std::string_view name_space = {});

  /// Whether a variable of this name is set, with or without a value that is known.
  [[nodiscard]] bool has(std::string_view name) const { return variables_.contains(name); }
  /// The same, or a Secret or ConfigMap that is not in the input may set it.
  [[nodiscard]] bool may_have(std::string_view name) const { return has_more_ || has(name); }
  /// nullptr where it is not known.
  [[nodiscard]] const std::string* value(std::string_view name) const;
  /// What Kubernetes makes of a command's word, or of a value, with $(NAME) in it; nullopt where
  /// that is not known.
  [[nodiscard]] std::optional<std::string> expanded(std::string_view text) const;

 private:
  void take_source(const Node& source, const ConfigMaps& config_maps, std::string_view name_space);

  std::map<std::string, std::optional<std::string>, std::less<>> variables_;
  // A Secret, or a ConfigMap that is not in the input, sets others.
  bool has_more_ = false;
};

}  // namespace fo::pod
