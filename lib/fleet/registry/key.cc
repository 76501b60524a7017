#include "fleet/registry/key.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "base/error.h"
#include "base/hex.h"
#include "text/ascii.h"

namespace fo::fleet {
namespace {

constexpr std::size_t kMaxSegment = 200;

struct KeyKind {
  std::string_view name;
  std::size_t segments;
  bool is_ephemeral;
  // The segment with the id; 0: none.
  std::size_t id;
};
constexpr std::array<KeyKind, 6> kKinds{{{"instances", 5, true, 4},
                                         {"cards", 2, false, 0},
                                         {"verdicts", 3, false, 1},
                                         {"weights", 2, false, 0},
                                         {"routers", 2, true, 1},
                                         {"wanted", 2, false, 0}}};

bool is_plain(char c) {
  return text::is_letter(c) || text::is_digit(c) || c == '.' || c == '_' || c == ':' || c == '-';
}

bool is_segment(std::string_view text) {
  return !text.empty() && text.size() <= kMaxSegment && text.front() != '.' &&
         text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_plain(c) || c == '%'; });
}

const KeyKind* kind_of(std::string_view key) {
  const auto* kind = std::ranges::find(kKinds, key.substr(0, key.find('/')), &KeyKind::name);
  return kind == kKinds.end() ? nullptr : kind;
}

}  // namespace

bool is_key(std::string_view key) {
  const KeyKind* const kind = kind_of(key);
  const std::vector<std::string_view> segments = text::split(key, '/');
  return kind != nullptr && segments.size() == kind->segments &&
         std::ranges::all_of(segments, is_segment);
}

std::string key_segment(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool is_first = result.empty();
    const bool is_as_it_is = is_plain(c) && !(is_first && (c == '.' || c == '-'));
    result +=
        is_as_it_is ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  if (!is_segment(result)) {
    throw base::Error(base::ExitStatus::kUsage,
                      "name " + base::quoted(text) + (text.empty() ? ": empty" : ": too long"));
  }
  return result;
}

std::string text_of_segment(std::string_view segment) {
  std::string text;
  for (std::size_t i = 0; i < segment.size(); ++i) {
    const bool is_escape = segment[i] == '%' && i + 2 < segment.size();
    const int high = is_escape ? base::hex_value(segment[i + 1]) : -1;
    const int low = is_escape ? base::hex_value(segment[i + 2]) : -1;
    if (high >= 0 && low >= 0) {
      text += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      text += segment[i];
    }
  }
  return text;
}

bool is_ephemeral(std::string_view key) {
  const KeyKind* const kind = kind_of(key);
  return kind != nullptr && kind->is_ephemeral;
}

std::string last_segment(std::string_view key) {
  return std::string(key.substr(key.rfind('/') + 1));
}

std::string_view id_of(std::string_view key) {
  const KeyKind* const kind = kind_of(key);
  const std::vector<std::string_view> segments = text::split(key, '/');
  const bool has_id = kind != nullptr && kind->id > 0 && kind->id < segments.size();
  return has_id ? segments[kind->id] : std::string_view();
}

}  // namespace fo::fleet
