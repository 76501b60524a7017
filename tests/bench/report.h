// The results of a measuring program: tables on stdout and, with --json FILE, the same as lines of
// JSON for packaging/bench, one line per comparison, value, point or skipped measurement.
#pragma once

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "bench.h"

namespace fo::bench {

/// The aim of a comparison. A cost is our time divided by the peer's, a speed the peer's by ours.
struct Aim {
  enum class Of { kNothing, kCost, kSpeed, kValue };
  Of of = Of::kNothing;
  /// The maximum of a cost or value, the minimum of a speed.
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

/// The common arguments of these programs, and the remaining ones: [--json FILE] [--quick]
/// [--series].
struct Arguments {
  std::string json;
  /// Do only enough to show that the program works.
  bool quick = false;
  /// Measure costs against N, in place of the tables.
  bool series = false;
  std::vector<std::string> rest;
};
Arguments parse_arguments(int argc, char** argv);

/// The number of runs, which is the last of `rest`, or `usually`. Throws base::Error kUsage, with
/// the program's usage line.
std::size_t parse_runs(const Arguments& arguments, std::size_t usually);

class Report {
 public:
  /// `bench` is the program's name.
  Report(std::string bench, const Arguments& arguments);

  /// Prints times multiplied by `scale`, in `unit`: median, minimum, maximum, their difference, and
  /// the ratio to the first contender's median.
  void table(const std::string& title, const std::string& unit, double scale,
             const std::vector<Contender>& contenders,
             const std::vector<Comparison>& comparisons = {});
  /// A comparison that no contenders have measured; without a peer if its name is empty. It goes to
  /// the JSON only: the program prints it in its own way.
  void row(const std::string& what, const std::string& unit, const Values& ours,
           const Values& peer = {}, Aim aim = {});
  /// A table, and for each contender a point of its series at `n`.
  void points(const std::string& title, const std::string& n_unit, std::size_t n,
              const std::string& unit, double scale, const std::vector<Contender>& contenders);
  /// A measurement that is impossible here, and the reason.
  void skip(const std::string& what, const std::string& reason);

 private:
  void write(const std::string& line);

  std::string bench_;
  std::string path_;
  std::ofstream json_;
};

/// The body of main: runs `body`, and reports an error like the tools. Returns the exit status.
int run(const std::string& bench, int argc, char** argv,
        const std::function<void(const Arguments&, Report&)>& body);

}  // namespace fo::bench
