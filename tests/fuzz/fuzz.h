// Common functions of the fuzzers: reading an input, a call that may refuse, and a required
// property.
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

/// Reports a finding unless `holds`.
inline void require(bool holds, const char* property) {
  if (holds) return;
  std::fprintf(stderr, "violated: %s\n", property);
  std::abort();
}

/// Returns what `parse` returns; nullopt if it refuses with one of these statuses. Any other error
/// is a finding.
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

/// An input as a sequence of small decisions. At its end, every value is 0 or empty.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : left_(reinterpret_cast<const char*>(data), size) {}

  [[nodiscard]] bool empty() const { return left_.empty(); }

  std::uint8_t byte() {
    const std::string_view taken = text(1);
    return taken.empty() ? std::uint8_t{0} : static_cast<std::uint8_t>(taken.front());
  }

  /// A number below `count`, which is not 0.
  std::size_t below(std::size_t count) { return byte() % count; }

  /// Up to 8 of the remaining bytes as a big-endian number.
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

/// The entry point of a fuzzer, which calls `fuzz_one` with each Input.
#define FO_FUZZER(fuzz_one)                                                           \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    fuzz_one({data, size});                                                           \
    return 0;                                                                         \
  }
