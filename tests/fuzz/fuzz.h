// What the fuzzers share: an input taken apart, a call that may refuse, a property that must hold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace fo::fuzz {

/// A finding unless it holds.
inline void require(bool holds, const char* property) {
  if (holds) return;
  std::fprintf(stderr, "violated: %s\n", property);
  std::abort();
}

/// What `parse` returns; nullopt when it refuses with one of these. Whatever else it throws is a
/// finding.
template <typename Parse>
auto unless_refused(std::initializer_list<base::ExitStatus> refusals, const Parse& parse)
    -> std::optional<decltype(parse())> {
  try {
    return parse();
  } catch (const base::Error& error) {
    if (std::find(refusals.begin(), refusals.end(), error.status()) == refusals.end()) throw;
    return std::nullopt;
  }
}

/// An input as a sequence of small decisions. Once it is used up, every answer is 0 or empty.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : left_(reinterpret_cast<const char*>(data), size) {}

  [[nodiscard]] bool empty() const { return left_.empty(); }

  std::uint8_t byte() {
    const std::string_view taken = text(1);
    return taken.empty() ? std::uint8_t{0} : static_cast<std::uint8_t>(taken.front());
  }

  /// From 0 to below `count`, which is not 0.
  std::size_t below(std::size_t count) { return byte() % count; }

  /// Big-endian, from as many bytes as there are up to 8.
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (const char c : text(8)) value = value << 8 | static_cast<unsigned char>(c);
    return value;
  }

  std::string_view text(std::size_t size) {
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view rest() { return text(left_.size()); }

 private:
  std::string_view left_;
};

}  // namespace fo::fuzz
