#include "metrics/sum_of_samples.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <system_error>

namespace fo::metrics {
namespace {

// The offset after the labels at the beginning of `text`; npos if they have no end.
std::size_t end_of_labels(std::string_view text) {
  bool in_value = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (in_value && text[at] == '\\') {
      ++at;
    } else if (text[at] == '"') {
      in_value = !in_value;
    } else if (text[at] == '}' && !in_value) {
      return at + 1;
    }
  }
  return std::string_view::npos;
}

std::optional<double> sample_of(std::string_view line, std::string_view name) {
  if (!line.starts_with(name)) return std::nullopt;
  line.remove_prefix(name.size());
  if (line.starts_with('{')) line.remove_prefix(std::min(end_of_labels(line), line.size()));
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == 0 || begin == std::string_view::npos) return std::nullopt;
  double value = 0;
  const auto parsed = std::from_chars(line.data() + begin, line.data() + line.size(), value);
  if (parsed.ec != std::errc() || !std::isfinite(value)) return std::nullopt;
  line.remove_prefix(static_cast<std::size_t>(parsed.ptr - line.data()));
  if (line.find_first_of(" \t\r") != 0 && !line.empty()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<double> sum_of_samples(std::string_view text, std::string_view name) {
  std::optional<double> sum;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (const auto value = sample_of(text.substr(0, end), name)) sum = sum.value_or(0) + *value;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return sum;
}

}  // namespace fo::metrics
