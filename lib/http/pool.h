// A pool of connections to HTTP servers, which keeps idle connections for later requests. For one
// loop and one thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "http/connection.h"

namespace fo::http {

struct PoolLimits {
  /// Maximum number of idle connections to one origin; the most recently used ones are kept.
  std::size_t idle_per_origin = 64;
  /// An idle connection is closed after this time. It should be shorter than the servers' idle
  /// timeouts: if both ends close at the same time, a request fails.
  base::Duration idle_time = std::chrono::seconds(4);
  /// Maximum age of a connection for further requests, because the servers behind a name change.
  base::Duration age = std::chrono::minutes(10);
  /// Maximum number of connections, idle or in use. If all are in use, get() waits.
  std::size_t connections = 16 * 1024;
  /// Limits of each answer.
  Connection::Limits answer;
};

class Pool {
 private:
  struct State;

 public:
  /// Returns a connection to the pool, or closes it if it cannot send another request.
  class Return {
   public:
    Return() = default;
    void operator()(Connection* connection) const;

   private:
    friend class Pool;
    std::weak_ptr<State> state_;
    std::string key_;
    base::Deadline::Clock::time_point born_;
  };
  /// A connection in use. It is kept if its answer was read to the end or finish()ed. It may
  /// outlive the pool.
  using Lease = std::unique_ptr<Connection, Return>;

  explicit Pool(boost::asio::any_io_executor executor, const PoolLimits& limits = {});
  /// Closes idle connections. Connections in use are closed when they are returned.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Returns the most recently used live connection to `origin`, or else a new one. A live
  /// connection may still turn out to be closed (Connection::progress). Throws what
  /// Connection::open throws, and kTryAgain with a code for which base::is_exhausted() is true if
  /// all connections stay in use until `deadline`.
  boost::asio::awaitable<Lease> get(Origin origin, base::Deadline deadline, std::string what);

  /// Returns a new connection, for a request that failed on a reused one.
  boost::asio::awaitable<Lease> open(Origin origin, base::Deadline deadline, std::string what);

  [[nodiscard]] std::size_t idle() const;
  /// The number of connections in use or being opened.
  [[nodiscard]] std::size_t busy() const;

 private:
  static boost::asio::awaitable<Lease> connect(std::shared_ptr<State> state, Origin origin,
                                               base::Deadline deadline, std::string what);
  static boost::asio::awaitable<void> wait_for_room(std::shared_ptr<State> state,
                                                    base::Deadline deadline, std::string what);

  std::shared_ptr<State> state_;
};

}  // namespace fo::http
