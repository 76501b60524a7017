#include "yaml/input.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace fo::yaml {
namespace {

// The size of two escapes, "\ud83d\ude00".
constexpr std::size_t kPairSize = 12;

bool begins_with_surrogates(std::string_view json) {
  if (!json.starts_with("\\ud") && !json.starts_with("\\uD")) return false;
  return std::string_view("89abAB").find(json[3]) != std::string_view::npos;
}

}  // namespace

std::string without_byte_order_marks(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  std::string out;
  std::size_t line = 0;
  bool may_be_there = true;
  while (line < text.size()) {
    const std::size_t end = std::min(text.find('\n', line), text.size() - 1) + 1;
    std::string_view whole = text.substr(line, end - line);
    if (may_be_there && whole.starts_with(kMark)) whole.remove_prefix(kMark.size());
    may_be_there = whole.starts_with("---");
    out += whole;
    line = end;
  }
  return out;
}

std::string without_surrogates(std::string text) {
  const bool may_have_some =
      text.find("\\ud") != std::string::npos || text.find("\\uD") != std::string::npos;
  if (!may_have_some || !nlohmann::json::accept(text)) return text;
  std::string out;
  std::string_view left = text;
  while (!left.empty()) {
    // In JSON, backslashes occur only in strings, and surrogates only in pairs.
    std::size_t size = std::min(left.find('\\'), left.size());
    if (begins_with_surrogates(left)) {
      size = kPairSize;
      const std::string pair(left.substr(0, size));
      out += nlohmann::json::parse('"' + pair + '"').get<std::string>();
    } else {
      if (size == 0) size = 2;
      out += left.substr(0, size);
    }
    left.remove_prefix(size);
  }
  return out;
}

}  // namespace fo::yaml
