#include "canary/check/progress.h"

#include <chrono>

namespace fo::canary {
std::string Progress::reason() const {
  return "requests run, and no token came for " +
         base::format_duration(std::chrono::duration_cast<std::chrono::seconds>(silent));
}

Progress ProgressWatch::update(const EngineLoad& load, base::Duration now) {
  if (load.running.value_or(0) <= 0 || !load.tokens) {
    last_.reset();
    return {};
  }
  const bool has_moved = last_ && *load.tokens > last_->tokens;
  // The counters of a new process begin again.
  const bool is_new = !last_ || *load.tokens < last_->tokens;
  if (is_new || has_moved) last_ = Seen{*load.tokens, now};
  return {.is_running = true, .has_moved = has_moved, .silent = now - last_->since};
}

}  // namespace fo::canary
