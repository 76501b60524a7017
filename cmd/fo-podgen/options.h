// The command line of fo-podgen.
#pragma once

#include <string>
#include <vector>

#include "cli/app.h"
#include "pod/generate/generate.h"

namespace fo::fo_podgen {

struct Options {
  enum class Format { kYaml, kJson, kName };

  cli::CommonOptions common;
  /// The function of the subcommand; generate() if there is none.
  base::ExitStatus (*run)(const Options& options) = nullptr;
  /// "-" is stdin.
  std::vector<std::string> files = {"-"};
  Format format = Format::kYaml;
  /// KIND or KIND/NAME; empty: all.
  std::vector<std::string> only;
  bool generated_only = false;
  /// Empty: write to stdout.
  std::string output_dir;
  pod::GenerateOptions generate;
  /// Whether a warning of check is a failure, too.
  bool strict = false;
  /// The inputs of diff.
  std::string before;
  std::string after;
  /// The target of install.
  std::string folder;
};

void declare(CLI::App& app, Options& options);

}  // namespace fo::fo_podgen
