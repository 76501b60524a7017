// Prometheus' text format 0.0.4, which every /metrics here uses: HELP and TYPE for each family, and
// escaped labels. Metric names are not checked.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"
#include "metrics/numbers.h"

namespace fo::metrics {

/// The Content-Type of this format.
inline constexpr std::string_view kPrometheusTextType = "text/plain; version=0.0.4; charset=utf-8";

class PrometheusText {
 public:
  using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

  /// Begins a family. `type` is "counter", "gauge" or "histogram"; `help` is one line without a
  /// backslash.
  void begin(std::string_view family, std::string_view type, std::string_view help);

  /// Adds a series to the last family.
  template <typename Value>
  void add(const Labels& labels, Value value) {
    add_line({}, labels, fmt::format("{}", value));
  }

  /// Adds all series of a histogram with these labels. `counts` has the count of each bucket alone
  /// (not cumulative), and a last one for values above all `bounds`.
  void add_histogram(const Labels& labels, std::span<const double> bounds,
                     std::span<const std::uint64_t> counts, double sum);

  /// Adds all series of `histogram`, with times in seconds.
  template <const auto& kBounds>
  void add(const Labels& labels, const Histogram<kBounds>& histogram) {
    std::vector<double> bounds;
    std::vector<std::uint64_t> counts;
    for (const base::Duration bound : kBounds) bounds.push_back(base::seconds_of(bound));
    for (std::size_t i = 0; i < histogram.kBuckets; ++i) counts.push_back(histogram.count(i));
    add_histogram(labels, bounds, counts, base::seconds_of(histogram.sum()));
  }

  /// Adds a family with one series, of a number or a histogram.
  template <typename Value>
  void add(std::string_view family, std::string_view type, std::string_view help,
           const Value& value, const Labels& labels = {}) {
    begin(family, type, help);
    add(labels, value);
  }

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  void add_line(std::string_view suffix, const Labels& labels, std::string_view value);

  std::string text_;
  std::string family_;
};

}  // namespace fo::metrics
