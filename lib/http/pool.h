// Connections to HTTP servers that are kept for the next request. Of one loop and one thread.
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
  /// Kept for one origin; of more, the one that was used last stays.
  std::size_t idle_per_origin = 64;
  /// An idle one is closed after that. Servers have a limit of their own, and what both close at
  /// once fails a request: it should be below theirs.
  base::Duration idle_time = std::chrono::seconds(4);
  /// One that is older carries no further request: behind a name the servers change.
  base::Duration age = std::chrono::minutes(10);
  /// In use or idle. Where all are in use, who wants one waits.
  std::size_t connections = 16 * 1024;
  /// Of each answer.
  Connection::Limits answer;
};

class Pool {
 private:
  struct State;

 public:
  /// Gives a connection back, or closes it where it can't take another request.
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
  /// To be read to the end of the answer, or finish()ed, if the connection is to be kept. It may
  /// outlive the pool.
  using Lease = std::unique_ptr<Connection, Return>;

  explicit Pool(boost::asio::any_io_executor executor, const PoolLimits& limits = {});
  /// Closes what is idle. Connections in use are closed when they are given back.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// The connection to `origin` that was used last and is alive, else a new one. A connection may
  /// still turn out to be dead (Connection::may_retry). Throws as Connection::open, and kTryAgain
  /// where none came free before `deadline`.
  boost::asio::awaitable<Lease> get(Origin origin, base::Deadline deadline, std::string what);

  /// A new connection, for a request that was lost on an old one.
  boost::asio::awaitable<Lease> open(Origin origin, base::Deadline deadline, std::string what);

  [[nodiscard]] std::size_t idle() const;
  /// Those in use, and those that are being opened.
  [[nodiscard]] std::size_t busy() const;

 private:
  static boost::asio::awaitable<Lease> connect(std::shared_ptr<State> state, Origin origin,
                                               base::Deadline deadline, std::string what);
  static boost::asio::awaitable<void> wait_for_room(std::shared_ptr<State> state,
                                                    base::Deadline deadline, std::string what);

  std::shared_ptr<State> state_;
};

}  // namespace fo::http
