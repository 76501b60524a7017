// How often GPUs fail, and the tensor-parallel groups that they form. Failures are independent and
// have a constant rate. Pure.
#pragma once

#include <cstdint>

#include "plan/times.h"

namespace fo::plan {

/// The mean time between failures of `gpus` GPUs (1 to 1e12), each of which fails `afr` times a
/// year (more than 0, at most 1): 8760 h / (gpus * afr), as in seed 002. Throws Error(kUsage) for
/// arguments outside these ranges.
Hours time_between_failures(std::uint64_t gpus, double afr);

/// The chance that one GPU fails on a given day: afr / 365, as in seed 002.
double gpu_failure_chance_per_day(double afr);

/// The chance that a group of `tp` GPUs, which fails with any of them, fails on a given day:
/// 1 - (1 - afr/365)^tp, as in seed 002.
double group_failure_chance_per_day(std::uint64_t tp, double afr);

/// The number of whole groups of `tp` GPUs; the remaining GPUs form none. Throws Error(kUsage) if
/// there are fewer than `tp`.
std::uint64_t count_groups(std::uint64_t gpus, std::uint64_t tp);

/// The expected number of groups that fail per day: count_groups * group_failure_chance_per_day.
double group_failures_per_day(std::uint64_t gpus, std::uint64_t tp, double afr);

/// The unplanned interruptions of the training of Llama 3 405B, by cause: "The Llama 3 Herd of
/// Models", arXiv 2407.21783, table 5.
struct PublishedRun {
  std::uint64_t gpus = 16'384;  // H100 80GB
  double days = 54;
  int interruptions = 419;
  int faulty_gpu = 148;
  int hbm = 72;
  int sram = 19;
  int gsp = 17;
  int silent_corruptions = 6;
};

/// Interruptions caused by GPUs, per GPU and year.
double published_afr(const PublishedRun& run);

/// GPU-days per silent data corruption that was noticed.
double gpu_days_per_corruption(const PublishedRun& run);

}  // namespace fo::plan
