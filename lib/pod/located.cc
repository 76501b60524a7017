#include "pod/located.h"

#include <cstddef>
#include <utility>

#include "yaml/scalar.h"

namespace fo::pod {
namespace {

void report(Findings& findings, Severity severity, const Located& where, std::string reason,
            std::string remedy) {
  add(findings, {severity, where.node == nullptr ? yaml::Position{} : where.node->position(),
                 where.path, std::move(reason), std::move(remedy)});
}

}  // namespace

Located Located::member(std::string_view key) const {
  return {node == nullptr ? nullptr : node->find(key), member_path(path, key)};
}

std::vector<Located> items_of(const Located& list) {
  std::vector<Located> items;
  if (list.node == nullptr) return items;
  items.reserve(list.node->items().size());
  for (std::size_t i = 0; i < list.node->items().size(); ++i) {
    items.push_back({&list.node->items()[i], item_path(list.path, i)});
  }
  return items;
}

const std::string& text_of(const Located& located) {
  static const std::string kNone;
  return located.node == nullptr ? kNone : located.node->text();
}

bool is_true(const Located& located) {
  return located.node != nullptr && yaml::as_boolean(*located.node) == true;
}

void refuse(Findings& findings, const Located& where, std::string reason, std::string remedy) {
  report(findings, Severity::kError, where, std::move(reason), std::move(remedy));
}

void warn(Findings& findings, const Located& where, std::string reason, std::string remedy) {
  report(findings, Severity::kWarning, where, std::move(reason), std::move(remedy));
}

}  // namespace fo::pod
