// What a measuring program found: tables for people on stdout and, with --json FILE, the same as
// lines of JSON for packaging/bench, one line per comparison, value, point or thing left out.
#pragma once

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "bench.h"

namespace fo::bench {

/// What a comparison should show. A cost is our time by the peer's, a speed the peer's by ours.
struct Aim {
  enum class Of { kNothing, kCost, kSpeed, kValue };
  Of of = Of::kNothing;
  /// The most of a cost or value, the least of a speed.
  double limit = 0;
};

inline Aim cost_at_most(double limit) { return {Aim::Of::kCost, limit}; }
inline Aim speed_at_least(double limit) { return {Aim::Of::kSpeed, limit}; }
inline Aim value_at_most(double limit) { return {Aim::Of::kValue, limit}; }

/// Two contenders of one table, by their names.
struct Comparison {
  std::string ours;
  std::string peer;
  Aim aim = {};
};

/// One side of a row.
struct Values {
  std::string name;
  std::vector<double> values;
};

/// The arguments that all these programs take, and what is left of them:
/// [--json FILE] [--quick] [--series].
struct Arguments {
  std::string json;
  /// As little as shows that the program works.
  bool quick = false;
  /// Cost against N, in place of the tables.
  bool series = false;
  std::vector<std::string> rest;
};
Arguments parse_arguments(int argc, char** argv);

/// The number of runs that is meant by the last of `rest` or, without one, by default. Throws
/// base::Error kUsage, with the line that says how the program is used.
std::size_t parse_runs(const Arguments& arguments, std::size_t usually);

class Report {
 public:
  /// `bench` is the program's name.
  Report(std::string bench, const Arguments& arguments);

  /// Times multiplied by `scale`, in `unit`: the median, the least and the most, how far those two
  /// are apart, and how many times the first contender's median it is.
  void table(const std::string& title, const std::string& unit, double scale,
             const std::vector<Contender>& contenders,
             const std::vector<Comparison>& comparisons = {});
  /// A comparison of what was not measured by contenders; no peer where its name is empty. Only for
  /// the JSON: the program prints it in its own way.
  void row(const std::string& what, const std::string& unit, const Values& ours,
           const Values& peer = {}, Aim aim = {});
  /// A table, and a point at `n` of a series for each contender.
  void points(const std::string& title, const std::string& n_unit, std::size_t n,
              const std::string& unit, double scale, const std::vector<Contender>& contenders);
  /// Something that can't be measured here, and why.
  void skip(const std::string& what, const std::string& reason);

 private:
  void write(const std::string& line);

  std::string bench_;
  std::string path_;
  std::ofstream json_;
};

/// What main does: runs `body`, and reports a failure as the tools do. The exit status.
int run(const std::string& bench, int argc, char** argv,
        const std::function<void(const Arguments&, Report&)>& body);

}  // namespace fo::bench
