#include "pod/dgd/budget.h"

#include <algorithm>

namespace fo::pod {

bool Budget::take_text(std::size_t bytes) {
  is_spent_ = is_spent_ || bytes > bytes_;
  if (!is_spent_) bytes_ -= bytes;
  return !is_spent_;
}

bool Budget::take(const yaml::Node& node) {
  is_spent_ = is_spent_ || values_ == 0;
  if (is_spent_) return false;
  --values_;
  return take_text(node.text().size()) &&
         std::all_of(node.items().begin(), node.items().end(),
                     [this](const yaml::Node& item) { return take(item); }) &&
         std::all_of(node.members().begin(), node.members().end(),
                     [this](const yaml::Node::Member& member) {
                       return take_text(member.key.size()) && take(member.value);
                     });
}

}  // namespace fo::pod
