// Computes failure rates of GPUs, and of the tensor-parallel groups that they form. Failures are
// independent and have a constant rate. Pure.
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

/// The unplanned interruptions of a training run, by cause.
struct TrainingRun {
  std::uint64_t gpus;
  double days;
  int interruptions;
  int faulty_gpu;
  int hbm;
  int sram;
  int gsp;
  int silent_corruptions;
};

/// Llama 3 405B on H100 80GB: "The Llama 3 Herd of Models", arXiv 2407.21783, table 5.
inline constexpr TrainingRun kLlama3Run{.gpus = 16'384,
                                        .days = 54,
                                        .interruptions = 419,
                                        .faulty_gpu = 148,
                                        .hbm = 72,
                                        .sram = 19,
                                        .gsp = 17,
                                        .silent_corruptions = 6};

/// The interruptions caused by GPUs, per GPU and year.
double afr_of(const TrainingRun& run);

/// GPU-days per silent corruption that was noticed.
double gpu_days_per_corruption(const TrainingRun& run);

}  // namespace fo::plan
