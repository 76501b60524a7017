// A client of etcd (3.4 and later) through its JSON gateway: keys, transactions, leases and watches
// of one cluster, whose servers are asked in turn until one answers. Coroutines of one loop.
//
// All calls throw, beside what each says: Refused for what etcd refuses; kUnavailable, kTryAgain
// (the deadline) and kProtocol where no server answers as etcd does, and of these rather what may
// pass; kConfig, kNotPermitted and kNoInput for certificates and passwords, whose files are read
// when they are needed.
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
  /// URLs without a path, one or more.
  std::vector<std::string> servers;
  /// For URLs that say https.
  net::TlsFiles tls;
  /// Empty: without a user.
  std::string user;
  std::string password_file;
};

/// What a server refused: kNotPermitted, kUnavailable for what may pass, else kProtocol.
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
  /// All keys, as of one revision, in the order of their names, asked for in pages. Throws
  /// kProtocol for more than `most`.
  boost::asio::awaitable<Found> list(KeyRange keys, base::Deadline deadline,
                                     std::size_t most = 100'000);
  /// As of when it is so. Throws Refused of kLeaseNotFound where its lease is gone.
  boost::asio::awaitable<Revision> put(Put put, base::Deadline deadline);
  /// How many there were.
  boost::asio::awaitable<std::uint64_t> erase(KeyRange keys, base::Deadline deadline);
  /// Throws Refused of kLeaseNotFound where an operation names a lease that is gone.
  boost::asio::awaitable<Outcome> commit(Transaction transaction, base::Deadline deadline);

  /// A lease of that name, and the time that it has; nullopt where there is one already.
  boost::asio::awaitable<std::optional<base::Duration>> grant_lease(LeaseId lease,
                                                                    base::Duration ttl,
                                                                    base::Deadline deadline);
  /// The time that the lease has from then on; nullopt for one that is gone.
  boost::asio::awaitable<std::optional<base::Duration>> keep_alive(LeaseId lease,
                                                                   base::Deadline deadline);
  /// nullopt for one that is gone.
  boost::asio::awaitable<std::optional<LeaseInfo>> time_to_live(LeaseId lease,
                                                                base::Deadline deadline);
  /// As of when it is gone; nullopt for one that was not there.
  boost::asio::awaitable<std::optional<Revision>> revoke_lease(LeaseId lease,
                                                               base::Deadline deadline);

  enum class WatchEnd {
    kStopped,    // on_message returned false
    kDeadline,   //
    kCompacted,  // what happened since is not known any more: list the keys anew
  };
  /// Watches over one connection; on_message is called from the loop. Throws when the connection
  /// breaks or etcd ends the watch, after which the next server is to be asked; the same `stream`
  /// goes on there.
  boost::asio::awaitable<WatchEnd> watch_once(
      WatchStream& stream, base::Deadline deadline,
      std::function<bool(const WatchMessage& message)> on_message);

  /// Watches over as many connections, to as many servers, as it takes; `on_failure` is called for
  /// each that broke, after which the next one is tried. Throws what is wrong for good before the
  /// first message came.
  boost::asio::awaitable<WatchEnd> watch(
      WatchStream& stream, base::Deadline deadline,
      std::function<bool(const WatchMessage& message)> on_message,
      std::function<void(const base::Error& failure)> on_failure = {});

  /// The one that is asked.
  [[nodiscard]] const std::string& server() const { return config_.servers[current_]; }
  /// The next one is asked from now on.
  void pass_over() { current_ = (current_ + 1) % config_.servers.size(); }

 private:
  // What `decode` makes of the answer. A server that does not give one is passed over, for this
  // request and those to come; when all are, what may pass is thrown rather than what may not.
  template <typename Decode>
  boost::asio::awaitable<std::invoke_result_t<Decode, std::string_view>> ask(
      Request request, base::Deadline deadline, Decode decode);
  boost::asio::awaitable<Found> list_once(KeyRange keys, base::Deadline deadline, std::size_t most);
  boost::asio::awaitable<std::string> ask_one(const Request& request, base::Deadline deadline);
  boost::asio::awaitable<void> authenticate(base::Deadline deadline);
  boost::asio::awaitable<std::string> post(const Request& request, base::Deadline deadline);
  [[nodiscard]] http::FetchOptions options_for(const Request& request) const;
  // True where a user has no token yet.
  [[nodiscard]] bool needs_token() const { return token_.empty() && !config_.user.empty(); }

  Config config_;
  std::size_t current_ = 0;
  // Of the user; empty: none yet, or etcd knows no users.
  std::string token_;
};

}  // namespace fo::etcd
