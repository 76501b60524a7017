// The figures of seed 002, the article "Dynamo Fault Tolerance: Canary Health Checks, Request
// Migration, and Graceful Degradation", computed by the functions of this library. Pure.
#pragma once

#include <string>
#include <vector>

namespace fo::plan {

struct Figure {
  /// The statement in the article.
  std::string claim;
  /// Whether the computed values, rounded to the digits given, are those of the claim.
  bool is_right;
  /// The computed values.
  std::string value;
  /// The formula of a right figure; why the claim is wrong otherwise.
  std::string reason;
};

/// First the right figures, then the wrong ones.
std::vector<Figure> figures_of_seed_002();

}  // namespace fo::plan
