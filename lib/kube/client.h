// A client of Kubernetes' API server, for objects of any kind. Coroutines of one loop.
//
// All calls throw, in addition to what each documents: Refused for an answer that the call does not
// expect; kUnavailable, kTryAgain (the deadline) and kProtocol if no API server answers; kConfig,
// kNotPermitted and kNoInput for certificates and tokens, whose files are read for each request.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "http/client.h"
#include "kube/api.h"
#include "kube/config.h"

namespace fo::kube {

/// "get Lease 'ns/pair': the API server answers 403: why". kUnavailable for transient failures,
/// kNotPermitted for 401 and 403, kNoInput for a missing namespace, otherwise kProtocol.
class Refused final : public base::Error {
 public:
  Refused(const std::string& what, const http::Response& answer);
  [[nodiscard]] int http_status() const { return http_status_; }
  /// The API server's Status; nullopt for an answer of a proxy in front of it.
  [[nodiscard]] const std::optional<Status>& status_object() const { return status_; }
  /// The minimum time until a retry, at most five seconds; 0 if the answer has none.
  [[nodiscard]] base::Duration retry_after() const { return retry_after_; }

 private:
  int http_status_;
  std::optional<Status> status_;
  base::Duration retry_after_{};
};

class Client {
 public:
  explicit Client(Config config) : config_(std::move(config)) {}

  /// Returns the object; nullopt if it does not exist.
  boost::asio::awaitable<std::optional<Object>> get(Collection from, std::string name,
                                                    base::Deadline deadline);

  /// Returns one page of at most `limit` objects (0: all), continued from the `next` of the page
  /// before. Throws Refused with 410 if `next` has expired.
  boost::asio::awaitable<List> list(Collection of, Selection selection, std::size_t limit,
                                    std::string next, base::Deadline deadline);
  /// Returns all pages, at one resource version. Throws kProtocol for more than `max_objects`
  /// objects.
  boost::asio::awaitable<List> list_all(Collection of, Selection selection, base::Deadline deadline,
                                        std::size_t max_objects = 10'000);

  /// The result of a change.
  struct Written {
    enum class Outcome {
      kDone,
      kConflict,  // the object has another resource version, or exists already
      kAbsent,    // the object does not exist
    };
    Outcome outcome = Outcome::kDone;
    /// For kDone: the object after the change.
    Object object;
    /// Otherwise: the reason, in one line.
    std::string reason;
  };
  /// Creates `object` (JSON), which contains its kind, version and this name.
  boost::asio::awaitable<Written> create(Collection in, std::string name, std::string object,
                                         base::Deadline deadline);
  /// Replaces the object if it still has the resource version in `object`.
  boost::asio::awaitable<Written> update(Collection in, std::string name, std::string object,
                                         base::Deadline deadline);

  enum class WatchEnd {
    kStopped,  // on_event returned false
    kEnded,    // by the server or the deadline: continue from the last resource version
    kExpired,  // the watch cannot continue from this version: list again
  };
  /// Watches over one connection for changes since `resource_version`, which is updated. Calls
  /// on_event from the loop, except for events that end the watch. Throws if the connection fails.
  boost::asio::awaitable<WatchEnd> watch_once(
      Collection of, Selection selection, std::string& resource_version, base::Deadline deadline,
      std::function<bool(const WatchEvent& event)> on_event);

 private:
  boost::asio::awaitable<http::Response> ask(std::string method, std::string path, std::string body,
                                             base::Deadline deadline,
                                             base::ByteCount limit = kMaxObjectBytes);
  // `what` begins the messages of errors.
  boost::asio::awaitable<Written> write(std::string what, std::string method, std::string path,
                                        Collection in, std::string name, std::string body,
                                        base::Deadline deadline);
  [[nodiscard]] http::FetchOptions options_for() const;

  Config config_;
};

}  // namespace fo::kube
