#include "keys.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "base/error.h"
#include "base/strong.h"
#include "base/text.h"
#include "os/file/file.h"
#include "route/metrics.h"

namespace fo::fo_route {
namespace {

constexpr std::size_t kHexDigits = 64;
constexpr std::int64_t kMaxLimit = 1'000'000'000'000;

class KeysReader {
 public:
  explicit KeysReader(const std::string& path) : path_(path) {}

  route::KeyRules read() {
    try {
      const toml::table table = toml::parse(os::read_file(path_, 16 * base::kMiB));
      for (const auto& [name, node] : table) add(name.str(), node);
    } catch (const toml::parse_error& error) {
      fail(error.source(), base::one_line(error.description()));
    }
    return std::move(rules_);
  }

 private:
  [[noreturn]] void fail(const toml::source_region& at, const std::string& reason) const {
    throw base::Error(
        base::ExitStatus::kConfig,
        fmt::format("read keys {}: line {}: {}", base::quoted(path_), at.begin.line, reason));
  }

  void add(std::string_view name, const toml::node& node) {
    const bool is_hash =
        name.size() == kHexDigits && name.find_first_not_of("0123456789abcdef") == name.npos;
    if (!is_hash) fail(node.source(), "expected the SHA-256 of a key, 64 hex digits");
    const toml::table* const table = node.as_table();
    if (table == nullptr) fail(node.source(), "expected a table");
    route::KeyRule rule;
    for (const auto& [field, value] : *table) read_field(field.str(), value, rule);
    rules_[std::string(name)] = std::move(rule);
  }

  void read_field(std::string_view name, const toml::node& value, route::KeyRule& rule) const {
    if (name == "tier") {
      rule.tier = read_tier(value);
    } else if (name == "requests_per_minute") {
      rule.requests_per_minute = read_limit(value);
    } else if (name == "tokens_per_minute") {
      rule.tokens_per_minute = read_limit(value);
    } else if (name == "requests_at_a_time") {
      rule.requests_at_a_time = read_limit(value);
    } else if (name == "models") {
      rule.models = read_names(value);
    } else {
      fail(value.source(), "unknown field " + base::quoted(name));
    }
  }

  [[nodiscard]] std::size_t read_tier(const toml::node& value) const {
    const auto text = value.value_exact<std::string>();
    const auto& names = route::kTierNames;
    const auto* const found = text ? std::find(names.begin(), names.end(), *text) : names.end();
    if (found == names.end())
      fail(value.source(), "tier: expected premium, standard or best_effort");
    return static_cast<std::size_t>(found - names.begin());
  }

  [[nodiscard]] std::uint64_t read_limit(const toml::node& value) const {
    const auto number = value.value_exact<std::int64_t>();
    if (!number || *number < 1 || *number > kMaxLimit) {
      fail(value.source(), "expected a number from 1 to 1000000000000");
    }
    return static_cast<std::uint64_t>(*number);
  }

  [[nodiscard]] std::vector<std::string> read_names(const toml::node& value) const {
    std::vector<std::string> names;
    const toml::array* const list = value.as_array();
    if (list == nullptr || list->empty()) fail(value.source(), "models: expected a list of names");
    for (const toml::node& one : *list) {
      const auto name = one.value_exact<std::string>();
      if (!name) fail(one.source(), "models: expected a name");
      names.push_back(*name);
    }
    return names;
  }

  const std::string& path_;
  route::KeyRules rules_;
};

}  // namespace

route::KeyRules read_keys(const std::string& path) { return KeysReader(path).read(); }

}  // namespace fo::fo_route
