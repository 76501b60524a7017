// The command line of fo-oracle.
#pragma once

#include <cstdint>
#include <string>

#include "oracle/engine_state.h"

namespace CLI {
class App;
}

namespace fo::oracle_tool {

struct Options {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
  oracle::EngineOptions engine;
};

void declare(CLI::App& app, Options& options);

}  // namespace fo::oracle_tool
