// The HTTP requests of the drivers: one frame for all of them, and what engines with OpenAI's API
// answer alike. It knows no kind of engine.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/error.h"
#include "base/strong.h"

namespace fo::engine {

/// What a driver does, as its messages begin.
inline constexpr std::string_view kSleepStep = "put the engine to sleep";
inline constexpr std::string_view kWakeStep = "wake the engine";
inline constexpr std::string_view kProveStep = "have the engine generate a token";
inline constexpr std::string_view kHealthStep = "check the engine's health";
inline constexpr std::string_view kIdleStep = "ask whether the engine is idle";
inline constexpr std::string_view kCountStep = "ask how much the engine has generated";

/// What an engine answered, whatever the status.
struct EngineReply {
  /// "put the engine to sleep: POST http://…".
  std::string what;
  int status = 0;
  std::string body;

  [[nodiscard]] bool ok() const { return status >= 200 && status < 300; }
  /// "what: status N: " and the engine's own reason: Error(kSoftware), or Error(kConfig) for 401
  /// and 403, which are for others.
  [[nodiscard]] base::Error refusal() const;
  /// Error(`kind`): "what: `reason`".
  [[nodiscard]] base::Error failure(base::ExitStatus kind, std::string_view reason) const;
};

/// Requests are sent one after the other; this object outlives them.
class EngineApi {
 public:
  /// `url` without a path: "http://127.0.0.1:8000", "unix:/run/engine.sock". Throws Error(kUsage).
  explicit EngineApi(const std::string& url);

  /// Errors: kTryAgain (deadline), kUnavailable (nobody answers), kSoftware (what came is no
  /// answer, or one beyond 1 MiB).
  [[nodiscard]] boost::asio::awaitable<EngineReply> get(std::string_view step,
                                                        std::string_view path,
                                                        base::Deadline deadline) const;
  /// With a JSON body, or with none where it is empty.
  [[nodiscard]] boost::asio::awaitable<EngineReply> post(std::string_view step,
                                                         std::string_view path,
                                                         std::string_view body,
                                                         base::Deadline deadline) const;

  /// nullopt when the path answers with 200, else one line why not.
  [[nodiscard]] boost::asio::awaitable<std::optional<std::string>> check_health(
      std::string_view path, base::Deadline deadline) const;

  /// One token from the first model of /v1/models, whose name is asked for once. Throws kSoftware
  /// for an answer without a token, else as get().
  [[nodiscard]] boost::asio::awaitable<void> prove(base::Deadline deadline);

  /// Whether the two gauges of /metrics, each summed over its series, are zero. nullopt where one
  /// is not there. The names are constants.
  [[nodiscard]] boost::asio::awaitable<std::optional<bool>> is_idle(std::string_view running,
                                                                    std::string_view waiting,
                                                                    base::Deadline deadline) const;

  /// The counter `name` of /metrics, summed over its series; nullopt where it is not there.
  [[nodiscard]] boost::asio::awaitable<std::optional<double>> count(std::string_view name,
                                                                    base::Deadline deadline) const;

 private:
  boost::asio::awaitable<EngineReply> metrics(std::string_view step, base::Deadline deadline) const;
  boost::asio::awaitable<EngineReply> send(std::string step, std::string method, std::string path,
                                           std::string body, base::Deadline deadline,
                                           base::ByteCount limit) const;
  boost::asio::awaitable<std::string> model(base::Deadline deadline) const;

  std::string url_;
  std::string model_;
};

/// Between two questions of those who ask until something has happened.
inline constexpr base::Duration kAskEngineAgain = std::chrono::milliseconds(10);

/// The string that the members of `path`, one inside the other, lead to in a JSON text; nullopt
/// where there is none. However deep a peer nests what else is in it.
std::optional<std::string> text_at(std::string_view body, std::initializer_list<const char*> path);

/// What an answer's body says went wrong, as one short line: the message of a JSON error of any of
/// the usual shapes, else the text itself.
std::string reason_in(std::string_view body);

/// `text`, cut at 200 bytes, blanks for its control characters.
std::string one_line(std::string_view text);
/// The same of the last line of what a command wrote.
std::string last_line(std::string_view text);

}  // namespace fo::engine
