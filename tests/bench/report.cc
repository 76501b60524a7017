#include "report.h"

#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"

namespace fo::bench {
namespace {

using nlohmann::json;

std::vector<double> scaled(std::vector<double> values, double scale) {
  for (double& value : values) value *= scale;
  return values;
}

// The difference between maximum and minimum, relative to the median.
double spread_of(const std::vector<double>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double middle = median(values);
  return middle > 0 ? (*most - *least) / middle : 0;
}

json described(const Values& side) {
  return {{"name", side.name}, {"median", median(side.values)}, {"values", side.values}};
}

json described(const Aim& aim, double value) {
  if (aim.of == Aim::Of::kNothing) return nullptr;
  const bool is_speed = aim.of == Aim::Of::kSpeed;
  return {{"of", is_speed                   ? "speed"
                 : aim.of == Aim::Of::kCost ? "cost"
                                            : "value"},
          {is_speed ? "at_least" : "at_most", aim.limit},
          {"met", is_speed ? value >= aim.limit : value <= aim.limit}};
}

}  // namespace

Arguments parse_arguments(int argc, char** argv) {
  Arguments parsed;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json" && i + 1 < argc) {
      parsed.json = argv[++i];
    } else if (word == "--quick") {
      parsed.quick = true;
    } else if (word == "--series") {
      parsed.series = true;
    } else {
      parsed.rest.push_back(word);
    }
  }
  return parsed;
}

std::size_t parse_runs(const Arguments& arguments, std::size_t usually) {
  if (arguments.rest.empty()) return arguments.quick ? 1 : usually;
  const auto runs = base::parse_uint(arguments.rest.front());
  if (arguments.rest.size() > 1 || !runs || *runs < 1 || *runs > 100'000) {
    throw base::Error(base::ExitStatus::kUsage,
                      "usage: [--json FILE] [--quick] [--series] [RUNS], 1 to 100000");
  }
  return *runs;
}

Report::Report(std::string bench, const Arguments& arguments)
    : bench_(std::move(bench)), path_(arguments.json) {
  // Makes each table visible as soon as it is complete.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (path_.empty()) return;
  json_.open(path_);
  if (!json_) {
    base::throw_errno(errno, base::ExitStatus::kCannotCreate, "create " + base::quoted(path_));
  }
}

void Report::table(const std::string& title, const std::string& unit, double scale,
                   const std::vector<Contender>& contenders,
                   const std::vector<Comparison>& comparisons) {
  std::printf("%s, %s\n%-42s %10s %10s %10s %8s %8s\n", title.c_str(), unit.c_str(), "", "median",
              "least", "most", "spread", "x first");
  const double first = median(contenders.front().seconds);
  for (const Contender& contender : contenders) {
    const auto [least, most] =
        std::minmax_element(contender.seconds.begin(), contender.seconds.end());
    const double middle = median(contender.seconds);
    std::printf("%-42s %10.2f %10.2f %10.2f %7.0f%% %8.2f\n", contender.name.c_str(),
                middle * scale, *least * scale, *most * scale, spread_of(contender.seconds) * 100,
                middle / first);
  }
  std::printf("\n");
  const auto side = [&](const std::string& name) {
    const auto found = std::find_if(contenders.begin(), contenders.end(),
                                    [&](const Contender& one) { return one.name == name; });
    if (found == contenders.end()) {
      throw base::Error(base::ExitStatus::kSoftware, "no contender " + base::quoted(name));
    }
    return Values{name, scaled(found->seconds, scale)};
  };
  for (const Comparison& one : comparisons) {
    row(title, unit, side(one.ours), one.peer.empty() ? Values{} : side(one.peer), one.aim);
  }
}

void Report::row(const std::string& what, const std::string& unit, const Values& ours,
                 const Values& peer, Aim aim) {
  json line{{"bench", bench_},         {"what", what},    {"unit", unit},
            {"ours", described(ours)}, {"peer", nullptr}, {"ratio", nullptr}};
  double value = median(ours.values);
  double spread = spread_of(ours.values);
  if (!peer.name.empty()) {
    // Values of the same turn were measured under the same conditions.
    const bool is_speed = aim.of == Aim::Of::kSpeed;
    const auto ratio = [&](double us, double them) { return is_speed ? them / us : us / them; };
    std::vector<double> by_turn;
    for (std::size_t i = 0; i < std::min(ours.values.size(), peer.values.size()); ++i) {
      by_turn.push_back(ratio(ours.values[i], peer.values[i]));
    }
    line["peer"] = described(peer);
    if (median(ours.values) > 0 && median(peer.values) > 0) {
      const double of_medians = ratio(median(ours.values), median(peer.values));
      line["ratio"] = of_medians;
      if (aim.of != Aim::Of::kValue) value = of_medians;
      spread = spread_of(by_turn);
    }
  }
  line["spread"] = spread;
  line["aim"] = described(aim, value);
  write(line.dump());
}

void Report::points(const std::string& title, const std::string& n_unit, std::size_t n,
                    const std::string& unit, double scale,
                    const std::vector<Contender>& contenders) {
  table(title + ": " + std::to_string(n) + " " + n_unit, unit, scale, contenders);
  for (const Contender& contender : contenders) {
    const std::vector<double> values = scaled(contender.seconds, scale);
    write(json{{"bench", bench_},
               {"series", title},
               {"name", contender.name},
               {"n", n},
               {"n_unit", n_unit},
               {"unit", unit},
               {"median", median(values)},
               {"values", values}}
              .dump());
  }
}

void Report::skip(const std::string& what, const std::string& reason) {
  std::printf("%s: left out: %s\n\n", what.c_str(), reason.c_str());
  write(json{{"bench", bench_}, {"what", what}, {"skipped", reason}}.dump());
}

void Report::write(const std::string& line) {
  if (path_.empty()) return;
  json_ << line << std::endl;
  if (!json_) {
    base::throw_errno(errno, base::ExitStatus::kIoError, "write " + base::quoted(path_));
  }
}

int run(const std::string& bench, int argc, char** argv,
        const std::function<void(const Arguments&, Report&)>& body) {
  try {
    const Arguments arguments = parse_arguments(argc, argv);
    Report report(bench, arguments);
    body(arguments, report);
    return 0;
  } catch (const base::Error& error) {
    std::fprintf(stderr, "%s: error: %s\n", bench.c_str(), error.what());
    return base::to_int(error.status());
  }
}

}  // namespace fo::bench
