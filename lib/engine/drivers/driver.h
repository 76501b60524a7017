// How an inference engine is put to sleep, woken and judged, whatever kind it is. A driver talks to
// an engine that runs; it neither starts nor ends it.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"

namespace fo::loop {
class Children;
}

namespace fo::engine {

enum class EngineKind { kVllm, kSglang, kDynamo, kCommand, kCold };

/// What becomes of requests in flight when the engine is put to sleep.
enum class SleepMode { kAbort, kFinish };

struct DriverOptions {
  EngineKind kind = EngineKind::kVllm;
  /// The engine's API: "http://127.0.0.1:8000".
  std::string url;
  /// Of a Dynamo worker: its system status server.
  std::string system_url;
  /// As vLLM counts: 1 keeps the weights (with a GMS: there), 2 drops them. What loads them again
  /// into a Dynamo worker is for `wake_command` to know.
  int sleep_level = 1;
  /// For the `command` kind, and in place of what another kind would do where they are not empty.
  /// Each is run by sh -c; status 0 is yes.
  std::string sleep_command;
  std::string wake_command;
  std::string health_command;
  std::string prove_command;
};

/// All calls are made one after the other on the loop's one thread, each bounded by its deadline;
/// the driver outlives them. They throw Error: kTryAgain when the deadline passes, kUnavailable
/// when nobody answers, kConfig for an engine that was started without what the step needs or wants
/// a key, kSoftware when the engine says that the step failed; each names the step and the engine's
/// own reason.
class EngineDriver {
 public:
  EngineDriver() = default;
  EngineDriver(const EngineDriver&) = delete;
  EngineDriver& operator=(const EngineDriver&) = delete;
  virtual ~EngineDriver() = default;

  /// Asks the engine's own health check. nullopt: it is well; else one line why not. Safe in any
  /// state of the engine that the driver knows of: an engine that must not be asked while its
  /// memory is released is not asked. Throws only what says that asking will never work.
  virtual boost::asio::awaitable<std::optional<std::string>> check_health(
      base::Deadline deadline) = 0;

  /// Gives device memory up. Done when the engine says so. No traffic may reach the engine from now
  /// on until wake() is done. Sleeping twice is one sleep. An engine that did not answer in time
  /// may still fall asleep later.
  virtual boost::asio::awaitable<void> sleep(base::Deadline deadline, SleepMode mode) = 0;

  /// Takes the memory back, in the order that the engine needs. An engine that is awake stays so.
  virtual boost::asio::awaitable<void> wake(base::Deadline deadline) = 0;

  /// Has the engine generate one token, the only proof that it serves. Of a Dynamo worker that says
  /// nothing of its endpoint "generate", only `prove_command` can prove anything.
  virtual boost::asio::awaitable<void> prove(base::Deadline deadline) = 0;

  /// Whether it works on no request at all; nullopt where the engine doesn't tell.
  virtual boost::asio::awaitable<std::optional<bool>> is_idle(base::Deadline deadline) = 0;

  /// How many tokens the engine has generated since it started, for all its clients: it only rises
  /// as long as the engine lives. An engine whose count rises works, however long a proof waits
  /// behind its other requests. nullopt where the engine doesn't tell. Safe in any state.
  virtual boost::asio::awaitable<std::optional<double>> progress(base::Deadline deadline);
};

/// `children` runs the commands and outlives the driver. A cold engine is driven like a vLLM that
/// never sleeps: sleep and wake do nothing. Throws Error(kUsage) for URLs that are none, for a
/// `command` kind that lacks a command, and for a Dynamo worker of sleep level 2 without one to
/// wake it.
std::unique_ptr<EngineDriver> make_driver(const DriverOptions& options, loop::Children& children);

}  // namespace fo::engine
