// Reads Prometheus' text format. Pure.
#pragma once

#include <optional>
#include <string_view>

namespace fo::metrics {

/// The sum of a metric over its series: of the lines "NAME{labels} value [timestamp]". A malformed
/// line, and a value that is infinite or no number, is left out; nullopt if that leaves none.
std::optional<double> sum_of_samples(std::string_view text, std::string_view name);

}  // namespace fo::metrics
