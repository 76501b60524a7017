// Computes the number of spare groups that replace those under repair. A spare is a whole
// tensor-parallel group: a spare GPU of another node cannot join one. Pure.
#pragma once

#include <cstdint>

#include "plan/times.h"

namespace fo::plan {

/// The largest mean for which the functions below are exact to eight digits.
inline constexpr double kMaxGroupsDown = 1e6;

/// The mean number of groups that are being repaired at a time: groups * tp * afr * repair / 8760
/// h. A spare replaces each failed group at once, so that `groups` of them can always fail; then
/// the number in repair is Poisson distributed, for any distribution of the repair times (Palm's
/// theorem, the M/G/infinity queue). `repair` is the mean time until a group serves again. Throws
/// Error(kUsage) for arguments outside their ranges, and for a mean over kMaxGroupsDown.
double mean_groups_down(std::uint64_t groups, std::uint64_t tp, double afr, Hours repair);

/// P(X > k) for a Poisson distributed X with this mean (more than 0, at most kMaxGroupsDown). Small
/// chances are exact, too: from the mean on, the tail itself is summed, not subtracted from 1.
double poisson_tail(double mean, std::uint64_t k);

/// The smallest number of spares s with P(X > s) <= `shortfall`, which is more than 0 and less
/// than 1.
std::uint64_t spares_needed(double mean, double shortfall);

}  // namespace fo::plan
