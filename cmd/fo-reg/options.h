// The command line of fo-reg.
#pragma once

#include <string>
#include <vector>

#include "cli/app.h"
#include "fleet/card/model_card.h"
#include "record_options.h"

namespace CLI {
class App;
}

namespace fo::fo_reg {

struct Options {
  cli::CommonOptions common;
  /// Does the work of the subcommand that was given.
  base::ExitStatus (*run)(const Options& options) = nullptr;
  /// The inputs of id; "-" is stdin.
  std::vector<std::string> files = {"-"};
  /// The last part of the ids.
  std::string endpoint = "generate";
  /// The options of card, except the adapters.
  fleet::ModelCardOptions card;
  /// NAME=DIR.
  std::vector<std::string> adapters;
  /// The inputs of explain; "-" is stdin.
  std::string card_a;
  std::string card_b;
  /// Options of the commands that use a registry.
  RecordOptions records;
};

void declare(CLI::App& app, Options& options);

/// Checks values of id and card, and converts the adapters. Throws Error(kUsage).
void check(Options& options);

}  // namespace fo::fo_reg
