// A stand-in for an inference engine that speaks vLLM's API. Its answers are those of its model
// (model.h), and its knobs (knobs.h) make it fail. On one loop, in the caller's process.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "http/server.h"
#include "oracle/engine_state.h"

namespace fo::oracle {

class Engine {
 public:
  Engine(boost::asio::any_io_executor executor, EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// The same as http::Server::listen.
  std::uint16_t listen(const std::string& address);
  void listen(base::UniqueFd listener);
  /// The same as http::Server::stop. A request that stalls ends with its connection, or with this
  /// object.
  boost::asio::awaitable<bool> stop(base::Deadline deadline);

  /// May be changed while requests run; each has the knobs of its beginning.
  Knobs& knobs();
  [[nodiscard]] Counts counts() const;

 private:
  std::shared_ptr<EngineState> state_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace fo::oracle
