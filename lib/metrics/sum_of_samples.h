// Reads Prometheus' text format. Pure.
#pragma once

#include <optional>
#include <string_view>

namespace fo::metrics {

/// The sum of a metric over its series, the lines "NAME{labels} value [timestamp]". Malformed lines
/// and values that are not finite are left out; nullopt if no value is left.
std::optional<double> sum_of_samples(std::string_view text, std::string_view name);

}  // namespace fo::metrics
