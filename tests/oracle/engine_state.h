// The state that the requests of one oracle share.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include "loop/event.h"
#include "oracle/knobs.h"
#include "oracle/request.h"
#include "oracle/slots.h"
#include "refengine/model/splitmix.h"

namespace fo::oracle {

/// Counts of clients' requests and of their outcomes since the start.
struct Counts {
  /// Number of requests that run now.
  std::uint64_t running = 0;
  std::uint64_t waiting = 0;
  /// Tokens of the running requests: their prompts, and their answers so far.
  std::uint64_t kv_tokens = 0;

  /// Completions and chats.
  std::uint64_t requests = 0;
  std::uint64_t refused = 0;
  /// Requests that failed as the knob "fail" has it.
  std::uint64_t faults = 0;
  std::uint64_t stopped = 0;
  std::uint64_t length = 0;
  /// Requests whose client has disconnected.
  std::uint64_t aborted = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t generation_tokens = 0;
};

struct EngineOptions {
  ModelInfo model = {};
  /// Answer of GET /version.
  std::string version = "0";
  /// The capacity that the usage of the KV cache is a share of.
  std::uint64_t kv_tokens = 1 << 20;
  /// Seed of jitter, random chunks and the places of faults.
  std::uint64_t chance = 0;
  Knobs knobs = {};
  /// Called with the body of each completion and chat.
  std::function<void(const nlohmann::json& body)> on_request = {};
  /// Ends the process, for the faults "exit" and "kill". Without it the engine closes its listener
  /// and all connections, as if its process had ended.
  std::function<void(Fault::Kind)> end_process = {};
};

struct EngineState {
  EngineState(boost::asio::any_io_executor on, EngineOptions with);
  ~EngineState();

  boost::asio::any_io_executor executor;
  EngineOptions options;
  Knobs knobs;
  Counts counts;
  std::shared_ptr<Slots> slots;
  bool is_asleep = false;
  std::time_t created = 0;
  bool has_ended = false;
  loop::Event ended;
  std::uint64_t draws = 0;
  /// The last answers of /v1/responses.
  std::deque<nlohmann::json> responses;

  /// A number that looks random, and is the same in each run with the same requests.
  std::uint64_t draw() {
    return refengine::splitmix(options.chance + ++draws * refengine::kSplitmixStep);
  }
  /// Waits until the engine ends.
  boost::asio::awaitable<void> stall();
  void end();

  /// Counts a request. Returns its knobs: "refuse_next" is not 0 if it is refused, and "fail" is
  /// kNone unless it is its turn to fail.
  Knobs admit();
};

}  // namespace fo::oracle
