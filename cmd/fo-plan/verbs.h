// The verbs of fo-plan: their parameters, and the calls of lib/plan that answer them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "inputs.h"

namespace fo::fo_plan {

/// A result. Its name is a key of JSON and a column of a table.
struct Result {
  const char* name;
  /// nullopt: the result does not exist.
  std::optional<double> value;
};

struct Answer {
  /// The results in words, with their formula.
  std::string sentence;
  /// A plot shows the first result, which always has a value.
  std::vector<Result> results;
  /// nullopt if no target was given.
  std::optional<bool> is_met = std::nullopt;
};

struct Verb {
  const char* name;
  const char* description;
  const char* formula;
  std::vector<Parameter> parameters;
  /// Throws Error(kUsage) for inputs out of their range.
  Answer (*answer)(const Inputs& inputs);
  /// Returns a line that follows the sentence in text output; nullptr: none.
  std::string (*note)(const Inputs& inputs) = nullptr;
};

Verb mtbf();
Verb spares();
Verb capacity();
Verb degrade();
Verb migrate();
Verb canary();

/// `value` with four digits, for sentences: "285.2", "8".
std::string rounded(double value);

/// All verbs, in the order of --help.
const std::vector<Verb>& verbs();

}  // namespace fo::fo_plan
