// The metrics of an engine, as fo-canary reads its load.
#include <chrono>
#include <cmath>
#include <string>

#include "canary/check/progress.h"
#include "fuzz.h"

namespace {

void fuzz_one(fo::fuzz::Input input) {
  using namespace fo::canary;
  using fo::fuzz::require;
  const std::string text(input.rest());
  const EngineLoad load = fo::fleet::read_engine_load(text);
  for (const auto& sum : {load.running, load.waiting, load.tokens}) {
    require(!sum || !std::isnan(*sum), "a sum is a number");
  }
  require(!(load.is_idle() && load.is_busy()), "an engine is not both idle and busy");
  const EngineLoad again = fo::fleet::read_engine_load(text + "\n# a comment\n\n");
  require(
      again.running == load.running && again.waiting == load.waiting && again.tokens == load.tokens,
      "a comment changes nothing");
  ProgressWatch watch;
  require(watch.update(load, std::chrono::seconds(1)).silent.count() == 0,
          "nothing is late at first");
  const Progress later = watch.update(load, std::chrono::seconds(3));
  require(!later.has_moved, "the same tokens are no progress");
  require(later.silent == (later.is_running ? std::chrono::seconds(2) : std::chrono::seconds(0)),
          "only an engine that runs requests is late");
}

}  // namespace

FO_FUZZER(fuzz_one)
