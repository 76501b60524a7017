// fo-plan: failure mathematics of a fleet of inference engines.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "cli/app.h"
#include "cli/screen/output.h"
#include "draw.h"
#include "options.h"
#include "plan/figures.h"
#include "report.h"
#include "sweep.h"

namespace {

using namespace fo;
using base::ExitStatus;
using fo_plan::Options;

ExitStatus print_figures(const Options& options) {
  const std::vector<plan::Figure> figures = plan::figures_of_seed_002();
  if (options.common.json) {
    cli::print_line(fo_plan::to_json(figures));
    return ExitStatus::kOk;
  }
  for (const plan::Figure& figure : figures) {
    cli::print_line((figure.is_right ? "right: " : "wrong: ") + figure.claim);
    cli::print_line((figure.is_right ? "  computed: " : "  corrected: ") + figure.value + " (" +
                    figure.reason + ")");
  }
  return ExitStatus::kOk;
}

ExitStatus print_answer(const Options& options) {
  const fo_plan::Inputs inputs = fo_plan::complete_inputs(options);
  const fo_plan::Answer answer = options.verb->answer(inputs);
  if (options.common.json) {
    cli::print_line(fo_plan::to_json(*options.verb, inputs, answer));
  } else {
    cli::print_line(answer.sentence);
    if (options.verb->note != nullptr) cli::print_line(options.verb->note(inputs));
  }
  return answer.is_met.value_or(true) ? ExitStatus::kOk : ExitStatus::kNo;
}

ExitStatus print_table(const Options& options) {
  const fo_plan::Verb& verb = *options.verb;
  const fo_plan::Sweep sweep = fo_plan::read_sweep(verb, options.sweep);
  const fo_plan::Inputs inputs = fo_plan::complete_inputs(options, sweep.parameter.name);
  const std::vector<fo_plan::Row> rows = fo_plan::run_sweep(verb, sweep, inputs);
  if (!options.plot.empty()) fo_plan::draw(verb, sweep, rows, options.plot);
  if (options.common.json) {
    cli::print_line(fo_plan::to_json(verb, inputs, sweep, rows));
  } else {
    cli::print(options.csv ? fo_plan::to_csv(sweep, rows) : fo_plan::to_text(sweep, rows));
  }
  const bool is_met = std::all_of(rows.begin(), rows.end(), [](const fo_plan::Row& row) {
    return row.answer.is_met.value_or(true);
  });
  return is_met ? ExitStatus::kOk : ExitStatus::kNo;
}

ExitStatus run(const Options& options) {
  if (options.csv && options.common.json) {
    throw base::Error(ExitStatus::kUsage, "--csv: cannot be used with --json");
  }
  if (options.verb == nullptr) return print_figures(options);
  return options.sweep.empty() ? print_answer(options) : print_table(options);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const cli::Tool tool{.name = "fo-plan",
                       .summary = "Compute failures, spares, capacity, migration and canaries.",
                       .version = FO_VERSION};
  return cli::run(argc, argv, tool, options, fo_plan::declare, [&] { return run(options); });
}
