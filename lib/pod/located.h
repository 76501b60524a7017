// Values of an input with the path that leads to them, and findings about them. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pod/finding.h"
#include "yaml/node.h"

namespace fo::pod {

/// Where no value is, the node is none.
struct Located {
  const yaml::Node* node = nullptr;
  std::string path;

  /// The member of that name, or none at the path that it would have.
  [[nodiscard]] Located member(std::string_view key) const;
};

/// The items of a list; none of anything else.
std::vector<Located> items_of(const Located& list);

/// Of a scalar; "" of anything else.
const std::string& text_of(const Located& located);

void refuse(Findings& findings, const Located& where, std::string reason, std::string remedy = {});
void warn(Findings& findings, const Located& where, std::string reason, std::string remedy = {});

}  // namespace fo::pod
