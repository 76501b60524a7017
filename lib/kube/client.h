// A client of Kubernetes' API server, for objects of any kind. Coroutines of one loop.
//
// All calls throw, beside what each says: Refused for an answer that is none of those that its
// caller expects; kUnavailable, kTryAgain (the deadline) and kProtocol where no API server answers;
// kConfig, kNotPermitted and kNoInput for certificates and tokens, whose files are read for each
// request.
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

/// "get Lease 'ns/pair': the API server answers 403: why". kUnavailable for what may pass,
/// kNotPermitted for 401 and 403, kNoInput for a namespace that is not there, else kProtocol.
class Refused final : public base::Error {
 public:
  Refused(const std::string& what, const http::Response& answer);
  [[nodiscard]] int http_status() const { return http_status_; }
  /// What the API server says; nullopt for an answer of somebody who stands before it.
  [[nodiscard]] const std::optional<Status>& status_object() const { return status_; }
  /// For how long not to ask again, five seconds at most; 0: it does not say.
  [[nodiscard]] base::Duration retry_after() const { return retry_after_; }

 private:
  int http_status_;
  std::optional<Status> status_;
  base::Duration retry_after_{};
};

class Client {
 public:
  explicit Client(Config config) : config_(std::move(config)) {}

  /// nullopt: there is none.
  boost::asio::awaitable<std::optional<Object>> get(Collection from, std::string name,
                                                    base::Deadline deadline);

  /// One page of at most `limit` objects (0: all), `next` being what the page before says. Throws
  /// Refused with 410 for a `next` that is too old.
  boost::asio::awaitable<List> list(Collection of, Selection selection, std::size_t limit,
                                    std::string next, base::Deadline deadline);
  /// All pages, as of one resource version. Throws kProtocol for more than `most` objects.
  boost::asio::awaitable<List> list_all(Collection of, Selection selection, base::Deadline deadline,
                                        std::size_t most = 10'000);

  /// What became of a change.
  struct Written {
    enum class Outcome {
      kDone,
      kConflict,  // it has another resource version by now, or is there already
      kAbsent,    // there is none
    };
    Outcome outcome = Outcome::kDone;
    /// Of kDone: as it is now.
    Object object;
    /// Otherwise: why, in one line.
    std::string reason;
  };
  /// `object` as JSON, with its kind, version and this name.
  boost::asio::awaitable<Written> create(Collection in, std::string name, std::string object,
                                         base::Deadline deadline);
  /// Replaces the object as it was seen, which the resource version in `object` says.
  boost::asio::awaitable<Written> update(Collection in, std::string name, std::string object,
                                         base::Deadline deadline);

  struct Patch {
    enum class Kind {
      kMerge,  // RFC 7386: null deletes; conflicts only where it says a resource version
      kApply,  // server-side apply: of a whole object's fields, those that `manager` owns;
               // creates what is not there; conflicts where another owns a field
    };
    Kind kind = Kind::kMerge;
    std::string body;
    /// Whose fields they are; kApply needs it.
    std::string manager = {};
    /// Takes fields from who owns them, instead of a conflict.
    bool is_forced = false;
  };
  boost::asio::awaitable<Written> patch(Collection in, std::string name, Patch patch,
                                        base::Deadline deadline);
  /// Only as it was seen where there is a resource version. The Object stays empty.
  boost::asio::awaitable<Written> remove(Collection from, std::string name,
                                         std::string resource_version, base::Deadline deadline);

  enum class WatchEnd {
    kStopped,  // on_event returned false
    kEnded,    // by the server or by the deadline: go on from the last resource version
    kExpired,  // it can't go on from there: list anew
  };
  /// Watches over one connection for changes since `resource_version`, which is kept up to date;
  /// on_event is called from the loop, and not for what ends the watch. Throws when the connection
  /// breaks.
  boost::asio::awaitable<WatchEnd> watch_once(
      Collection of, Selection selection, std::string& resource_version, base::Deadline deadline,
      std::function<bool(const WatchEvent& event)> on_event);

  /// Watches over as many connections as it takes, until on_event returns false, the deadline
  /// (kEnded) or kExpired; `on_failure` is called for each connection that broke, after which
  /// another is tried. Throws what is wrong for good before the first event came.
  boost::asio::awaitable<WatchEnd> watch(
      Collection of, Selection selection, std::string& resource_version, base::Deadline deadline,
      std::function<bool(const WatchEvent& event)> on_event,
      std::function<void(const base::Error& failure)> on_failure = {});

 private:
  struct Body {
    std::string text = {};
    /// Empty: JSON.
    std::string type = {};
  };
  boost::asio::awaitable<http::Response> ask(std::string method, std::string path, Body body,
                                             base::Deadline deadline,
                                             base::ByteCount limit = kMaxObjectBytes);
  // `what` is being done, as a message says it.
  boost::asio::awaitable<Written> write(std::string what, std::string method, std::string path,
                                        Collection in, std::string name, Body body,
                                        base::Deadline deadline);
  [[nodiscard]] http::FetchOptions options_for() const;

  Config config_;
};

}  // namespace fo::kube
