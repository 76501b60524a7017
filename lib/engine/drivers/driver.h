// The interface to put an inference engine to sleep, wake it and check it, for any kind of engine.
// A driver controls a running engine; it neither starts nor ends it.
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

/// The treatment of requests in flight when the engine is put to sleep.
enum class SleepMode { kAbort, kFinish };

struct DriverOptions {
  EngineKind kind = EngineKind::kVllm;
  /// URL of the engine's API: "http://127.0.0.1:8000".
  std::string url;
  /// URL of a Dynamo worker's system status server.
  std::string system_url;
  /// vLLM's levels: 1 keeps the weights (in a GMS if there is one), 2 drops them. For a Dynamo
  /// worker, `wake_command` must load them again.
  int sleep_level = 1;
  /// The commands of the `command` kind; for other kinds, a command that is not empty replaces the
  /// step. Each is run by sh -c; status 0 means success.
  std::string sleep_command;
  std::string wake_command;
  std::string health_command;
  std::string prove_command;
};

/// All calls are made one after another on the loop's thread, each with its deadline; the driver
/// must outlive them. They throw Error: kTryAgain if the deadline passes, kUnavailable if nothing
/// answers, kConfig if the engine was started without an option that the step needs, or requires an
/// API key, kSoftware if the engine reports that the step failed. Each message has the step and the
/// engine's own reason.
class EngineDriver {
 public:
  EngineDriver() = default;
  EngineDriver(const EngineDriver&) = delete;
  EngineDriver& operator=(const EngineDriver&) = delete;
  virtual ~EngineDriver() = default;

  /// Runs the engine's own health check. nullopt if it is healthy; otherwise the reason in one
  /// line. Safe in any state that the driver knows: an engine that must not be queried while its
  /// memory is released is not queried. Throws only errors that every later query would repeat.
  virtual boost::asio::awaitable<std::optional<std::string>> check_health(
      base::Deadline deadline) = 0;

  /// Releases device memory; returns when the engine confirms it. No requests may reach the engine
  /// from now until wake() has returned. A second sleep does nothing. An engine that did not answer
  /// in time may still fall asleep later.
  virtual boost::asio::awaitable<void> sleep(base::Deadline deadline, SleepMode mode) = 0;

  /// Gets the memory back, in the order that the engine needs. Does nothing if the engine is awake.
  virtual boost::asio::awaitable<void> wake(base::Deadline deadline) = 0;

  /// Has the engine generate one token, the only proof that it serves. For a Dynamo worker that
  /// does not report its endpoint "generate", only `prove_command` is a proof.
  virtual boost::asio::awaitable<void> prove(base::Deadline deadline) = 0;

  /// Whether the engine has no request at all; nullopt if it does not report that.
  virtual boost::asio::awaitable<std::optional<bool>> is_idle(base::Deadline deadline) = 0;

  /// The number of tokens that the engine has generated since its start, for all clients; it never
  /// decreases while the engine lives. An engine whose count increases works, however long a proof
  /// waits behind its other requests. nullopt if the engine does not report it. Safe in any state.
  virtual boost::asio::awaitable<std::optional<double>> progress(base::Deadline deadline);
};

/// `children` runs the commands and must outlive the driver. A cold engine is driven like a vLLM
/// that never sleeps: sleep and wake do nothing. Throws Error(kUsage) for an invalid URL, for a
/// sleep level other than 1 and 2, for a `command` kind without a command to sleep or to wake, and
/// for a Dynamo worker with sleep level 2 and no wake command.
std::unique_ptr<EngineDriver> make_driver(const DriverOptions& options, loop::Children& children);

}  // namespace fo::engine
