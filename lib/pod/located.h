// Values of an input with their paths, and findings about them. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pod/finding.h"
#include "yaml/node.h"

namespace fo::pod {

/// `node` is null if there is no value.
struct Located {
  const yaml::Node* node = nullptr;
  std::string path;

  /// The member of that name; if it is missing, a value without a node, but with the member's path.
  [[nodiscard]] Located member(std::string_view key) const;
};

/// The items of a list; empty for any other value.
std::vector<Located> items_of(const Located& list);

/// The text of a scalar; "" for any other value.
const std::string& text_of(const Located& located);

/// The value of a boolean; false for any other value.
bool is_true(const Located& located);

void refuse(Findings& findings, const Located& where, std::string reason, std::string remedy = {});
void warn(Findings& findings, const Located& where, std::string reason, std::string remedy = {});

}  // namespace fo::pod
