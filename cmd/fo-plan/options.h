// The command line of fo-plan.
#pragma once

#include <string>

#include "cli/app.h"
#include "verbs.h"

namespace CLI {
class App;
}

namespace fo::fo_plan {

struct Options {
  cli::CommonOptions common;
  /// nullptr: figures.
  const Verb* verb = nullptr;
  /// The values that are given on the command line.
  Inputs inputs;
  /// NAME=FROM:TO:STEP.
  std::string sweep;
  bool csv = false;
  /// The file in which the table is drawn.
  std::string plot;
};

void declare(CLI::App& app, Options& options);

/// The given inputs, and the presets of the others. Throws Error(kUsage) if an input is missing
/// that is required, or that a given input needs. The input named `swept` counts as given.
Inputs complete_inputs(const Options& options, const std::string& swept = {});

}  // namespace fo::fo_plan
