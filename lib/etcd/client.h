// A client of etcd (3.4 and later) through its JSON gateway: keys, transactions, leases and watches
// of one cluster, whose servers are tried in turn until one answers. Coroutines of one loop.
//
// All calls throw, in addition to what each documents: Refused if etcd refuses the request;
// kUnavailable, kTryAgain (the deadline) and kProtocol if no server answers as etcd, preferably a
// transient one of these; kConfig, kNotPermitted and kNoInput for certificates and passwords, whose
// files are read when they are needed.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "etcd/api.h"
#include "etcd/watch_stream.h"
#include "http/client.h"
#include "net/tls_files.h"

namespace fo::etcd {

struct Config {
  /// One or more URLs without a path.
  std::vector<std::string> servers;
  /// For https URLs.
  net::TlsFiles tls;
  /// Empty: no authentication.
  std::string user;
  std::string password_file;
};

/// A refusal of a server: kNotPermitted, kUnavailable for transient failures, otherwise kProtocol.
class Refused final : public base::Error {
 public:
  Refused(const std::string& server, const Refusal& refusal);
  [[nodiscard]] Refusal::Kind kind() const { return kind_; }

 private:
  Refusal::Kind kind_;
};

class Client {
 public:
  explicit Client(Config config) : config_(std::move(config)) {}

  boost::asio::awaitable<Found> range(Range range, base::Deadline deadline);
  /// Returns all keys of the range, at one revision, sorted by key; reads them in pages. Throws
  /// kProtocol for more than `max_keys`.
  boost::asio::awaitable<Found> list(KeyRange keys, base::Deadline deadline,
                                     std::size_t max_keys = 100'000);
  /// Returns the revision of the change. Throws Refused with kLeaseNotFound if the lease does not
  /// exist.
  boost::asio::awaitable<Revision> put(Put put, base::Deadline deadline);
  /// Returns the number of deleted keys.
  boost::asio::awaitable<std::uint64_t> erase(KeyRange keys, base::Deadline deadline);
  /// Throws Refused with kLeaseNotFound if a lease in an operation does not exist.
  boost::asio::awaitable<Outcome> commit(Transaction transaction, base::Deadline deadline);

  /// Creates a lease with this id and returns its time to live; nullopt if the id is in use.
  boost::asio::awaitable<std::optional<base::Duration>> grant_lease(LeaseId lease,
                                                                    base::Duration ttl,
                                                                    base::Deadline deadline);
  /// Returns the time to live from now on; nullopt if the lease does not exist.
  boost::asio::awaitable<std::optional<base::Duration>> keep_alive(LeaseId lease,
                                                                   base::Deadline deadline);
  /// Returns the revision of the revocation; nullopt if the lease did not exist.
  boost::asio::awaitable<std::optional<Revision>> revoke_lease(LeaseId lease,
                                                               base::Deadline deadline);

  enum class WatchEnd {
    kStopped,    // on_message returned false
    kDeadline,   // the deadline passed
    kCompacted,  // changes after that revision were compacted: list the keys again
  };
  /// Watches over one connection and calls on_message from the loop. Throws if the connection fails
  /// or etcd ends the watch; the next call uses the next server and continues the same `stream`.
  boost::asio::awaitable<WatchEnd> watch_once(
      WatchStream& stream, base::Deadline deadline,
      std::function<bool(const WatchMessage& message)> on_message);

  /// The current server.
  [[nodiscard]] const std::string& server() const { return config_.servers[current_]; }
  /// Continues with the next server.
  void pass_over() { pass_over(current_); }

 private:
  // Returns `decode` of the answer. A server that does not answer is passed over, for this request
  // and later ones. If all fail, a transient error is thrown rather than a permanent one.
  template <typename Decode>
  boost::asio::awaitable<std::invoke_result_t<Decode, std::string_view>> ask(
      Request request, base::Deadline deadline, Decode decode);
  boost::asio::awaitable<Found> list_once(KeyRange keys, base::Deadline deadline,
                                          std::size_t max_keys);
  boost::asio::awaitable<std::string> ask_one(const Request& request, base::Deadline deadline);
  boost::asio::awaitable<void> authenticate(base::Deadline deadline);
  boost::asio::awaitable<std::string> post(const Request& request, base::Deadline deadline);
  [[nodiscard]] http::FetchOptions options_for(const Request& request) const;
  // True if there is a user without a token yet.
  [[nodiscard]] bool needs_token() const { return token_.empty() && !config_.user.empty(); }

  // Continues with the server after `failed`, unless another request has passed that one over
  // meanwhile.
  void pass_over(std::size_t failed) {
    if (current_ == failed) current_ = (failed + 1) % config_.servers.size();
  }

  Config config_;
  std::size_t current_ = 0;
  // The user's token; empty if there is none yet, or authentication is disabled.
  std::string token_;
};

}  // namespace fo::etcd
