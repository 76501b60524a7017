#include "plan/spares.h"

#include <algorithm>
#include <cmath>

#include "plan/argument.h"

namespace fo::plan {
namespace {

constexpr double kMaxRepairHours = 1e6;

double poisson_chance(double mean, double k) {
  return std::exp(k * std::log(mean) - mean - std::lgamma(k + 1));
}

}  // namespace

double mean_groups_down(std::uint64_t groups, std::uint64_t tp, double afr, Hours repair) {
  check_count("groups", groups);
  check_count("tp", tp);
  check_positive("afr", afr, 1);
  check_positive("repair (hours)", repair.count(), kMaxRepairHours);
  const double mean =
      static_cast<double>(groups) * static_cast<double>(tp) * afr * (repair / kYear);
  check_positive("mean number of groups down", mean, kMaxGroupsDown);
  return mean;
}

double poisson_tail(double mean, std::uint64_t k) {
  check_positive("mean number of groups down", mean, kMaxGroupsDown);
  check_range("spares", static_cast<double>(k), 0, kMaxCount);
  const auto last = static_cast<double>(k);
  if (last < mean) {
    // The terms from k down to 0 decrease; their sum is not close to 1.
    double sum = 0;
    double term = poisson_chance(mean, last);
    for (double i = last; i >= 0 && term > sum * 1e-17; --i) {
      sum += term;
      term *= i / mean;
    }
    return std::max(0.0, 1 - sum);
  }
  double sum = 0;
  double term = poisson_chance(mean, last + 1);
  for (double i = last + 2; term > sum * 1e-17; ++i) {
    sum += term;
    term *= mean / i;
  }
  return sum;
}

std::uint64_t spares_needed(double mean, double shortfall) {
  // Bounds close to 0 and 1, which are not valid themselves.
  check_range("shortfall", shortfall, 1e-300, 1 - 1e-15);
  std::uint64_t enough = 1;
  while (poisson_tail(mean, enough) > shortfall) enough *= 2;
  std::uint64_t low = 0;
  while (low < enough) {
    const std::uint64_t middle = low + (enough - low) / 2;
    if (poisson_tail(mean, middle) > shortfall) {
      low = middle + 1;
    } else {
      enough = middle;
    }
  }
  return enough;
}

}  // namespace fo::plan
