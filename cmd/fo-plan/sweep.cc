#include "sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "text/table.h"

namespace fo::fo_plan {
namespace {

[[noreturn]] void refuse(const std::string& text, const std::string& reason) {
  throw base::Error(base::ExitStatus::kUsage, "--sweep " + base::quoted(text) + ": " + reason);
}

const Parameter& find_parameter(const Verb& verb, const std::string& name,
                                const std::string& text) {
  std::vector<const char*> known;
  for (const Parameter& parameter : verb.parameters) {
    if (parameter.kind == Kind::kMeasurements) continue;
    if (parameter.name == name) return parameter;
    known.push_back(parameter.name);
  }
  refuse(text, fmt::format("{} has no {}; it has {}", verb.name, base::quoted(name),
                           fmt::join(known, ", ")));
}

std::vector<std::string> cells(const Row& row, const char* missing, int digits) {
  const auto number = [digits](double value) { return fmt::format("{:.{}g}", value, digits); };
  std::vector<std::string> all{number(row.value)};
  for (const Result& result : row.answer.results) {
    all.push_back(result.value ? number(*result.value) : missing);
  }
  if (row.answer.is_met) all.emplace_back(*row.answer.is_met ? "yes" : "no");
  return all;
}

}  // namespace

Sweep read_sweep(const Verb& verb, const std::string& text) {
  const std::size_t sign = text.find('=');
  const std::size_t first = text.find(':', sign);
  const std::size_t second = first == std::string::npos ? first : text.find(':', first + 1);
  if (sign == std::string::npos || second == std::string::npos) {
    refuse(text, "expected NAME=FROM:TO:STEP");
  }
  Sweep sweep{.parameter = find_parameter(verb, text.substr(0, sign), text)};
  double to = 0;
  try {
    sweep.from = read_number(sweep.parameter.kind, text.substr(sign + 1, first - sign - 1));
    to = read_number(sweep.parameter.kind, text.substr(first + 1, second - first - 1));
    sweep.step = read_number(sweep.parameter.kind, text.substr(second + 1));
  } catch (const base::Error& error) {
    refuse(text, error.what());
  }
  if (sweep.step == 0) refuse(text, "the step is 0");
  if (to < sweep.from) refuse(text, "the end is less than the beginning");
  // The last row counts even if it is beyond `to` by a rounding error.
  const double rows = std::floor((to - sweep.from) / sweep.step * (1 + 1e-12)) + 1;
  if (rows > kMaxRows) refuse(text, fmt::format("more than {} rows", kMaxRows));
  sweep.rows = static_cast<std::size_t>(rows);
  return sweep;
}

std::vector<Row> run_sweep(const Verb& verb, const Sweep& sweep, Inputs inputs) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < sweep.rows; ++i) {
    const double value = sweep.from + static_cast<double>(i) * sweep.step;
    inputs.set_number(sweep.parameter, value);
    rows.push_back({value, verb.answer(inputs)});
  }
  return rows;
}

std::vector<std::string> column_names(const Sweep& sweep, const std::vector<Row>& rows) {
  std::vector<std::string> names{column_name(sweep.parameter)};
  for (const Result& result : rows.front().answer.results) names.emplace_back(result.name);
  if (rows.front().answer.is_met) names.emplace_back("met");
  return names;
}

std::string to_text(const Sweep& sweep, const std::vector<Row>& rows) {
  std::vector<std::string> names = column_names(sweep, rows);
  text::TextTable table(std::string(names.size(), 'r'));
  table.add(std::move(names));
  for (const Row& row : rows) table.add(cells(row, "-", 6));
  return table.text();
}

std::string to_csv(const Sweep& sweep, const std::vector<Row>& rows) {
  std::string text = fmt::format("{}\n", fmt::join(column_names(sweep, rows), ","));
  for (const Row& row : rows) text += fmt::format("{}\n", fmt::join(cells(row, "", 15), ","));
  return text;
}

}  // namespace fo::fo_plan
