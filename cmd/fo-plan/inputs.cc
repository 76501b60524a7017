#include "inputs.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"

namespace fo::fo_plan {
namespace {

// A double represents every whole number up to this one.
constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 53;

[[noreturn]] void refuse(const std::string& text, const std::string& expected) {
  throw base::Error(base::ExitStatus::kUsage, base::quoted(text) + ": expected " + expected);
}

std::optional<double> parse_number(std::string_view text) {
  const std::optional<double> value = base::parse_number(text);
  return value && std::isfinite(*value) && *value >= 0 ? value : std::nullopt;
}

std::optional<double> parse_fraction(std::string_view text) {
  const bool is_percentage = text.ends_with('%');
  if (is_percentage) text.remove_suffix(1);
  const std::optional<double> value = parse_number(text);
  return value && is_percentage ? *value / 100 : value;
}

std::optional<double> parse_seconds(std::string_view text) {
  const std::optional<base::Duration> duration = base::parse_duration(text);
  if (!duration) return std::nullopt;
  return plan::Seconds(*duration).count();
}

std::optional<double> parse_count(std::string_view text) {
  const std::optional<std::uint64_t> count = base::parse_uint(text);
  if (!count || *count > kMaxCount) return std::nullopt;
  return static_cast<double>(*count);
}

std::optional<double> parse_bytes(std::string_view text) {
  const std::optional<base::ByteCount> size = base::parse_size(text);
  if (!size) return std::nullopt;
  return static_cast<double>(*size);
}

struct Reading {
  std::optional<double> value;
  const char* expected;
};

Reading read(Kind kind, std::string_view text) {
  switch (kind) {
    case Kind::kNumber:
      return {parse_number(text), "a number, at least 0"};
    case Kind::kCount:
      return {parse_count(text), "a whole number"};
    case Kind::kFraction:
      return {parse_fraction(text), "a fraction such as 0.03 or 3%"};
    case Kind::kDuration:
      return {parse_seconds(text), "a duration such as 500ms, 30s or 72h"};
    case Kind::kSize:
      return {parse_bytes(text), "a size such as 63GB or 40KiB"};
    case Kind::kMeasurements:
      break;
  }
  return {std::nullopt, "a number"};
}

std::vector<plan::MeasuredTpot> read_measurements(const std::string& text) {
  std::vector<plan::MeasuredTpot> all;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, comma - at);
    const std::size_t colon = std::min(one.find(':'), one.size());
    const auto concurrency = base::parse_uint(one.substr(0, colon));
    const auto tpot = colon < one.size() ? parse_seconds(one.substr(colon + 1)) : std::nullopt;
    if (!concurrency || !tpot) refuse(one, "N:DURATION such as 32:25ms");
    all.push_back({*concurrency, plan::Seconds(*tpot)});
    at = comma + 1;
  }
  return all;
}

}  // namespace

double read_number(Kind kind, const std::string& text) {
  const Reading reading = read(kind, text);
  if (!reading.value) refuse(text, reading.expected);
  return *reading.value;
}

std::string column_name(const Parameter& parameter) {
  std::string name = parameter.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return parameter.kind == Kind::kDuration ? name + "_s" : name;
}

void Inputs::set(const Parameter& parameter, const std::string& text) {
  if (parameter.kind == Kind::kMeasurements) {
    measured_ = read_measurements(text);
  } else {
    numbers_[parameter.name] = read_number(parameter.kind, text);
  }
  texts_[parameter.name] = text;
}

void Inputs::set_number(const Parameter& parameter, double number) {
  numbers_[parameter.name] = number;
}

std::uint64_t Inputs::count(const std::string& name) const {
  return static_cast<std::uint64_t>(number(name));
}

plan::Seconds Inputs::seconds(const std::string& name) const { return plan::Seconds(number(name)); }

std::optional<double> Inputs::find(const std::string& name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace fo::fo_plan
