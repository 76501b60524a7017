// Gives requests to workers: each request waits in the queue of its set until a worker of that has
// a slot and room for its tokens. Coroutines of one loop.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>

#include "route/api_error.h"
#include "route/job.h"
#include "route/metrics.h"
#include "route/workers.h"

namespace fo::route {

class Dispatcher {
 public:
  Dispatcher(boost::asio::any_io_executor executor, Workers& workers, Metrics& metrics);
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  /// Waits for a worker, which is then in `job.worker`, with a slot and tokens that release()
  /// frees. Returns the refusal if there is none in time, or the queue is full. A request that was
  /// placed before goes to the head of the queue.
  boost::asio::awaitable<std::optional<ApiError>> place(Job& job);
  /// Frees what the job has on its worker, if it has one.
  void release(Job& job);
  /// After a change of workers: gives waiting requests to those that have room now.
  void on_change();

  /// Whether a worker of the set could take a request if it had room.
  [[nodiscard]] bool is_usable(const SetKey& set) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fo::route
