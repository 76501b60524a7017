// Workers with known answers, and the canaries that they answer as expected.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "canary/check/engine_client.h"
#include "canary/file/canary_file.h"
#include "canary/file/learn.h"
#include "canary/file/texts.h"
#include "loop/test_loop.h"
#include "oracle/running_oracle.h"

namespace fo::canary {

inline EngineAddress address_of(const fo::oracle::test::RunningOracle& oracle) {
  return make_engine_address(oracle.url(), std::nullopt, {}, "oracle");
}

/// Returns the result of learn() for the two and the first `count` of the built-in prompts.
inline Learned learned_from(const fo::oracle::test::RunningOracle& one,
                            const fo::oracle::test::RunningOracle& other, std::size_t count) {
  std::vector<PromptText> prompts = builtin_prompts();
  prompts.resize(count);
  fo::test::TestLoop loop;
  LearnOptions options;
  options.engines = {address_of(one), address_of(other)};
  options.prompts = std::move(prompts);
  options.busy_pause = std::chrono::milliseconds(1);
  return loop.run(learn(std::move(options)));
}

/// Any oracle answers its canaries as expected.
inline const CanaryFile& file_of_oracles() {
  static const CanaryFile file = [] {
    const fo::oracle::test::RunningOracle one;
    const fo::oracle::test::RunningOracle other;
    return learned_from(one, other, 12).file;
  }();
  return file;
}

}  // namespace fo::canary
