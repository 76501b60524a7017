#include "base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

namespace fo::base {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t count;
};

constexpr std::array<Unit, 5> kDurationUnits{{
    {"h", 3'600'000'000'000},
    {"m", 60'000'000'000},
    {"s", 1'000'000'000},
    {"ms", 1'000'000},
    {"us", 1'000},
}};

constexpr std::array<Unit, 9> kSizeUnits{{
    {"B", 1},
    {"KiB", 1LL << 10},
    {"MiB", 1LL << 20},
    {"GiB", 1LL << 30},
    {"TiB", 1LL << 40},
    {"KB", 1'000},
    {"MB", 1'000'000},
    {"GB", 1'000'000'000},
    {"TB", 1'000'000'000'000},
}};

// Reads a number that is the whole text.
template <typename Number>
std::optional<Number> parsed_whole(std::string_view text) {
  Number value = 0;
  const char* end = text.data() + text.size();
  const auto [at, ec] = std::from_chars(text.data(), end, value);
  if (ec != std::errc() || at != end || text.empty()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::uint64_t> parse_uint(std::string_view text) {
  return parsed_whole<std::uint64_t>(text);
}

std::optional<double> parse_number(std::string_view text) { return parsed_whole<double>(text); }

std::optional<std::uint32_t> parse_id(std::string_view text) {
  const std::optional<std::uint64_t> value = parse_uint(text);
  if (!value || *value >= std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
  return static_cast<std::uint32_t>(*value);
}

std::optional<Duration> parse_duration(std::string_view text) {
  if (text == "0") return Duration::zero();
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [at, ec] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (ec != std::errc()) return std::nullopt;
  const std::string_view name(at, static_cast<std::size_t>(end - at));
  for (const Unit& unit : kDurationUnits) {
    if (name != unit.name) continue;
    const double nanoseconds = value * static_cast<double>(unit.count);
    if (nanoseconds > 100.0 * 365.25 * 24 * 3.6e12) return std::nullopt;
    return Duration(std::llround(nanoseconds));
  }
  return std::nullopt;
}

std::optional<ByteCount> parse_size(std::string_view text) {
  std::size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  const std::optional<std::uint64_t> value = parse_uint(text.substr(0, digits));
  if (!value) return std::nullopt;
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const std::string_view name = text.substr(digits);
  for (const Unit& unit : kSizeUnits) {
    if (name != unit.name && !(name.empty() && unit.count == 1)) continue;
    const auto count = static_cast<std::uint64_t>(unit.count);
    if (*value > kMax / count) return std::nullopt;
    return *value * count;
  }
  return std::nullopt;
}

std::string format_duration(Duration duration) {
  for (const Unit& unit : kDurationUnits) {
    if (duration.count() != 0 && duration.count() % unit.count == 0) {
      return std::to_string(duration.count() / unit.count) + std::string(unit.name);
    }
  }
  return duration.count() == 0 ? "0s" : std::to_string(duration.count() / 1000) + "us";
}

std::string format_size(ByteCount size) {
  constexpr std::array<std::string_view, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(size);
  std::size_t name = 0;
  // From 1023.95 on, one decimal would round to 1024.0 of the smaller unit.
  while (value >= 1023.95 && name + 1 < kNames.size()) {
    value /= 1024;
    ++name;
  }
  std::array<char, 32> text{};
  const bool whole = std::llround(value * 10) % 10 == 0;
  std::snprintf(text.data(), text.size(), whole ? "%.0f %s" : "%.1f %s", value,
                kNames[name].data());
  return text.data();
}

}  // namespace fo::base
