// A verb's answers for a range of values of one parameter, as a table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verbs.h"

namespace fo::fo_plan {

/// The maximum number of rows of a table.
inline constexpr double kMaxRows = 100'000;

struct Sweep {
  Parameter parameter;
  double from = 0;
  double step = 0;
  std::size_t rows = 0;
};

/// Parses NAME=FROM:TO:STEP. Throws Error(kUsage) with a reason.
Sweep read_sweep(const Verb& verb, const std::string& text);

struct Row {
  double value;
  Answer answer;
};

std::vector<Row> run_sweep(const Verb& verb, const Sweep& sweep, Inputs inputs);

/// "gpus", "mtbf_hours" …, and "met" if there is a target.
std::vector<std::string> column_names(const Sweep& sweep, const std::vector<Row>& rows);

/// Aligned columns, with six significant digits.
std::string to_text(const Sweep& sweep, const std::vector<Row>& rows);

/// Comma-separated values: a line of names, and a line for each row. A missing value is empty.
std::string to_csv(const Sweep& sweep, const std::vector<Row>& rows);

}  // namespace fo::fo_plan
