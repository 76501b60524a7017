#include "plan/failures.h"

#include <cmath>

#include "plan/argument.h"

namespace fo::plan {
namespace {

constexpr double kDaysPerYear = Days(kYear).count();

double gpu_days(const TrainingRun& run) { return static_cast<double>(run.gpus) * run.days; }

}  // namespace

Hours time_between_failures(std::uint64_t gpus, double afr) {
  check_count("gpus", gpus);
  check_positive("afr", afr, 1);
  return kYear / (static_cast<double>(gpus) * afr);
}

double gpu_failure_chance_per_day(double afr) {
  check_positive("afr", afr, 1);
  return afr / kDaysPerYear;
}

double group_failure_chance_per_day(std::uint64_t tp, double afr) {
  check_count("tp", tp);
  // 1 - (1 - p)^tp without the loss of digits for a small p.
  return -std::expm1(static_cast<double>(tp) * std::log1p(-gpu_failure_chance_per_day(afr)));
}

std::uint64_t count_groups(std::uint64_t gpus, std::uint64_t tp) {
  check_count("gpus", gpus);
  check_count("tp", tp, static_cast<double>(gpus));
  return gpus / tp;
}

double group_failures_per_day(std::uint64_t gpus, std::uint64_t tp, double afr) {
  return static_cast<double>(count_groups(gpus, tp)) * group_failure_chance_per_day(tp, afr);
}

double afr_of(const TrainingRun& run) {
  const int failures = run.faulty_gpu + run.hbm + run.sram + run.gsp + run.silent_corruptions;
  return failures / gpu_days(run) * kDaysPerYear;
}

double gpu_days_per_corruption(const TrainingRun& run) {
  return gpu_days(run) / run.silent_corruptions;
}

}  // namespace fo::plan
