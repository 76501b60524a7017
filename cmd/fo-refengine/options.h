// The command line of fo-refengine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/endpoint_options.h"
#include "refengine/engine.h"
#include "refengine/model/make_model.h"

namespace fo::refengine_tool {

struct Options {
  enum class Command { kServe, kMakeModel, kRank };
  cli::CommonOptions common;
  Command command = Command::kServe;
  refengine::EngineOptions serve;
  cli::EndpointOptions endpoint;
  std::uint32_t ranks = 1;
  std::string model_dir;
  refengine::MakeModelOptions make_model;
  /// The number of the rank. It is only for process lists: the rank reads its number from its
  /// socket.
  std::uint32_t rank = 0;
};

void declare(CLI::App& app, Options& options);

/// Assigns GMS and device to each rank: rank i uses device --device + i. Throws Error(kUsage) for a
/// single --socket with several ranks.
refengine::EngineOptions to_engine_options(const Options& options);

}  // namespace fo::refengine_tool
