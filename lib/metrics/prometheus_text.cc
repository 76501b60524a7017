#include "metrics/prometheus_text.h"

#include <cstddef>

namespace fo::metrics {
namespace {

std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void PrometheusText::begin(std::string_view family, std::string_view type, std::string_view help) {
  family_ = family;
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", family, help, family, type);
}

void PrometheusText::add_line(std::string_view suffix, const Labels& labels,
                              std::string_view value) {
  text_ += family_;
  text_ += suffix;
  char before = '{';
  for (const auto& [name, text] : labels) {
    text_ += fmt::format("{}{}=\"{}\"", before, name, escaped(text));
    before = ',';
  }
  if (!labels.empty()) text_ += '}';
  text_ += fmt::format(" {}\n", value);
}

void PrometheusText::add_histogram(const Labels& labels, std::span<const double> bounds,
                                   std::span<const std::uint64_t> counts, double sum) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    count += counts[i];
    const std::string bound = i < bounds.size() ? fmt::format("{}", bounds[i]) : "+Inf";
    Labels with_bound = labels;
    with_bound.emplace_back("le", bound);
    add_line("_bucket", with_bound, fmt::format("{}", count));
  }
  add_line("_sum", labels, fmt::format("{}", sum));
  add_line("_count", labels, fmt::format("{}", count));
}

}  // namespace fo::metrics
