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
  /// The given ones.
  Inputs inputs;
  /// NAME=FROM:TO:STEP.
  std::string sweep;
  bool csv = false;
  /// The file to draw.
  std::string plot;
};

void declare(CLI::App& app, Options& options);

/// The given inputs and the presets of others. Throws Error(kUsage) if a required one is missing,
/// or one that a given one needs, unless it is `swept`.
Inputs complete_inputs(const Options& options, const std::string& swept = {});

}  // namespace fo::fo_plan
