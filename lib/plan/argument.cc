#include "plan/argument.h"

#include <fmt/format.h>

#include "base/error.h"

namespace fo::plan {

void check_range(std::string_view name, double value, double min, double max) {
  if (value >= min && value <= max) return;
  throw base::Error(base::ExitStatus::kUsage,
                    fmt::format("{} '{}': expected {} to {}", name, value, min, max));
}

void check_positive(std::string_view name, double value, double max) {
  check_range(name, value, kMinPositive, max);
}

void check_count(std::string_view name, std::uint64_t value, double max) {
  check_range(name, static_cast<double>(value), 1, max);
}

void check_time(std::string_view name, Seconds time, double min) {
  check_range(fmt::format("{} (seconds)", name), time.count(), min, kDay.count());
}

}  // namespace fo::plan
