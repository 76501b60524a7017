#include "pod/manifest.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "text/ascii.h"
#include "yaml/scalar.h"

namespace fo::pod {
namespace {

std::string kind_of(const yaml::Node& manifest) { return manifest.text_at({"kind"}); }
std::string name_of(const yaml::Node& manifest) { return manifest.text_at({"metadata", "name"}); }
std::string name_space_of(const yaml::Node& manifest) {
  return manifest.text_at({"metadata", "namespace"});
}

// The name unchanged, if all its characters are those of names, which are safe on a terminal; else
// quoted.
std::string shown(const std::string& name) {
  const bool is_plain = std::all_of(name.begin(), name.end(), [](char one) {
    return text::is_letter_or_digit(one) || one == '.' || one == '-' || one == '_' || one == '/' ||
           one == ':';
  });
  return is_plain && !name.empty() ? name : base::quoted(name);
}

std::string group_of(const yaml::Node& manifest) {
  const std::string version = manifest.text_at({"apiVersion"});
  const std::size_t slash = version.find('/');
  return slash == std::string::npos ? "" : version.substr(0, slash);
}

// The member that identifies the items of a list, if there is one.
std::optional<std::string_view> key_of(const yaml::Node& list) {
  constexpr std::array<std::string_view, 5> kKeys = {"name", "mountPath", "key", "containerPort",
                                                     "ip"};
  for (const std::string_view key : kKeys) {
    std::set<std::string> seen;
    const bool tells_apart =
        std::all_of(list.items().begin(), list.items().end(), [&](const yaml::Node& item) {
          const yaml::Node* value = item.find(key);
          return value != nullptr && value->is_scalar() && seen.insert(value->text()).second;
        });
    if (tells_apart) return key;
  }
  return std::nullopt;
}

// The members or items of one level, under distinct names.
std::map<std::string, const yaml::Node*> parts(const yaml::Node& node,
                                               std::optional<std::string_view> key) {
  std::map<std::string, const yaml::Node*> result;
  for (const yaml::Node::Member& member : node.members()) {
    if (!member.value.is_null()) result["." + shown(member.key)] = &member.value;
  }
  for (std::size_t i = 0; i < node.items().size(); ++i) {
    const yaml::Node& item = node.items()[i];
    result["[" + (key ? shown(item.find(*key)->text()) : std::to_string(i)) + "]"] = &item;
  }
  return result;
}

class Comparison {
 public:
  Comparison(std::string object, std::vector<std::string>& lines)
      : object_(std::move(object)), lines_(lines) {}

  void compare(const yaml::Node& before, const yaml::Node& after, const std::string& path) {
    if (before.same_as(after)) return;
    if (before.kind() != after.kind() || before.is_scalar()) {
      if (before.is_scalar() && after.is_scalar()) {
        report('~', path, yaml::to_json_scalar(before) + " -> " + yaml::to_json_scalar(after));
      } else {
        report_all('-', before, path);
        report_all('+', after, path);
      }
      return;
    }
    auto key = key_of(before);
    if (key_of(after) != key) key.reset();
    const auto old_parts = parts(before, key);
    const auto new_parts = parts(after, key);
    for (const auto& [name, part] : old_parts) {
      const auto found = new_parts.find(name);
      if (found == new_parts.end()) {
        report_all('-', *part, path + name);
      } else {
        compare(*part, *found->second, path + name);
      }
    }
    for (const auto& [name, part] : new_parts) {
      if (!old_parts.contains(name)) report_all('+', *part, path + name);
    }
    compare_order(before, after, key, path);
  }

 private:
  // For items with names, above all containers, the order matters, too.
  void compare_order(const yaml::Node& before, const yaml::Node& after,
                     std::optional<std::string_view> key, const std::string& path) {
    if (!key) return;
    const auto common = [&](const yaml::Node& list, const yaml::Node& other) {
      const auto others = parts(other, key);
      std::string order;
      for (const yaml::Node& item : list.items()) {
        const std::string name = shown(item.find(*key)->text());
        if (others.contains("[" + name + "]")) order += (order.empty() ? "" : ", ") + name;
      }
      return order;
    };
    const std::string old_order = common(before, after);
    const std::string new_order = common(after, before);
    if (old_order != new_order) report('~', path, "order " + old_order + " -> " + new_order);
  }

  void report_all(char sign, const yaml::Node& node, const std::string& path) {
    if (node.is_scalar()) return report(sign, path, yaml::to_json_scalar(node));
    if (node.items().empty() && node.members().empty()) {
      return report(sign, path, node.is_map() ? "{}" : "[]");
    }
    for (const auto& [name, part] : parts(node, key_of(node))) report_all(sign, *part, path + name);
  }

  void report(char sign, std::string_view path, const std::string& what) {
    if (path.starts_with('.')) path.remove_prefix(1);
    lines_.push_back(std::string{sign} + " " + object_ + " " + std::string(path) + ": " + what);
  }

  std::string object_;
  std::vector<std::string>& lines_;
};

// Manifests with equal or missing names stay separate.
std::map<std::string, const yaml::Node*> by_name(const std::vector<yaml::Node>& manifests) {
  std::map<std::string, const yaml::Node*> result;
  std::map<std::string, int> count;
  for (const yaml::Node& manifest : manifests) {
    std::string name = kind_of(manifest).empty()
                           ? "unnamed"
                           : shown(kind_of(manifest)) + "/" + shown(name_of(manifest));
    if (const std::string space = name_space_of(manifest); !space.empty()) {
      name += " in " + shown(space);
    }
    // The version of a resource may change, but its group identifies it; the core group is not
    // shown.
    const std::string group = group_of(manifest);
    if (group.find('.') != std::string::npos && !group.ends_with(".k8s.io")) {
      name += " of " + shown(group);
    }
    const int number = ++count[name];
    if (number > 1) name += " (" + std::to_string(number) + ")";
    result.emplace(std::move(name), &manifest);
  }
  return result;
}

}  // namespace

std::string kubectl_name(const yaml::Node& manifest) {
  if (kind_of(manifest).empty()) return "unnamed";
  const std::string group = group_of(manifest);
  return shown(text::lower(kind_of(manifest)) + (group.empty() ? "" : "." + group)) + "/" +
         shown(name_of(manifest));
}

std::string manifest_file_name(const yaml::Node& manifest, GroupInName group) {
  std::string name = text::lower(kind_of(manifest).empty() ? "unnamed" : kind_of(manifest));
  if (group == GroupInName::kYes && !group_of(manifest).empty()) name += "." + group_of(manifest);
  name += "-" + name_of(manifest);
  if (const std::string space = name_space_of(manifest); !space.empty()) name = space + "-" + name;
  for (char& one : name) {
    if (!text::is_letter_or_digit(one) && one != '.') one = '-';
  }
  if (name.starts_with('.')) name[0] = '-';
  return name.substr(0, 200);
}

bool matches(const yaml::Node& manifest, std::string_view selector) {
  const std::string wanted = text::lower(selector);
  if (wanted.empty() || kind_of(manifest).empty()) return false;
  const std::string kubectls = text::lower(kubectl_name(manifest));
  return wanted == text::lower(kind_of(manifest)) ||
         wanted == text::lower(kind_of(manifest) + "/" + name_of(manifest)) || wanted == kubectls ||
         wanted == kubectls.substr(0, kubectls.find('/'));
}

std::vector<std::string> differences(const std::vector<yaml::Node>& before,
                                     const std::vector<yaml::Node>& after) {
  std::vector<std::string> lines;
  const auto old_ones = by_name(before);
  const auto new_ones = by_name(after);
  for (const auto& [name, manifest] : old_ones) {
    const auto found = new_ones.find(name);
    if (found == new_ones.end()) {
      lines.push_back("- " + name);
    } else {
      Comparison(name, lines).compare(*manifest, *found->second, "");
    }
  }
  for (const auto& [name, manifest] : new_ones) {
    if (!old_ones.contains(name)) lines.push_back("+ " + name);
  }
  return lines;
}

}  // namespace fo::pod
