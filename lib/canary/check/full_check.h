// One check of one engine from the outside, in the order of cost: it connects, and asks for the
// engine's health, its progress, a token, an answer to a canary, and an answer of the sampler.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string_view>
#include <vector>

#include "canary/check/checker_options.h"
#include "canary/check/engine_client.h"
#include "canary/check/schedule.h"
#include "canary/file/canary_file.h"
#include "canary/judge/worker_health.h"

namespace fo::canary {

/// In the order of the exit statuses of monitoring plug-ins.
enum class EngineHealth { kHealthy, kSuspicious, kUnhealthy, kUnknown };
std::string_view to_string(EngineHealth health);

struct FullCheck {
  struct Part {
    Step step;
    Finding finding = Finding::kPass;
    Attempt attempt = {};
  };
  /// The parts in their order. If a part makes the next ones meaningless, it is the last one.
  std::vector<Part> parts = {};

  /// Returns the part that decides; nullptr if all have passed.
  [[nodiscard]] const Part* decisive() const;
  [[nodiscard]] EngineHealth health() const;
};

/// Checks the engine. Wrong tokens that are repeated make it unhealthy, because no vote can be
/// held. `options.sampler_part` is not used: the sampler is asked once if the file has it. `file`
/// must outlive the call. Throws nothing that depends on the engine.
boost::asio::awaitable<FullCheck> check_fully(EngineAddress engine, const CanaryFile& file,
                                              CheckerOptions options);

}  // namespace fo::canary
