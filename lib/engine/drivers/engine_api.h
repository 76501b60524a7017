// The drivers' HTTP requests: common error handling, and the answers that all engines with OpenAI's
// API share. Independent of the kind of engine.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/error.h"
#include "base/strong.h"

namespace fo::engine {

/// The steps of drivers, which begin their error messages.
inline constexpr std::string_view kSleepStep = "put the engine to sleep";
inline constexpr std::string_view kWakeStep = "wake the engine";
inline constexpr std::string_view kProveStep = "have the engine generate a token";
inline constexpr std::string_view kHealthStep = "check the engine's health";
inline constexpr std::string_view kIdleStep = "query whether the engine is idle";
inline constexpr std::string_view kCountStep = "query how much the engine has generated";

/// An engine's answer, with any status.
struct EngineReply {
  /// The step and the request: "put the engine to sleep: POST http://…".
  std::string what;
  int status = 0;
  std::string body;

  [[nodiscard]] bool ok() const { return status >= 200 && status < 300; }
  /// "what: status N: " and the engine's own reason: Error(kSoftware), or Error(kConfig) for 401
  /// and 403, which mean missing permissions.
  [[nodiscard]] base::Error refusal() const;
  /// Error(`kind`): "what: `reason`".
  [[nodiscard]] base::Error failure(base::ExitStatus kind, std::string_view reason) const;
};

/// Requests are sent one after another; this object must outlive them.
class EngineApi {
 public:
  /// `url` has no path: "http://127.0.0.1:8000", "unix:/run/engine.sock". Throws Error(kUsage).
  explicit EngineApi(const std::string& url);

  /// Errors: kTryAgain (deadline), kUnavailable (nothing answers), kSoftware (an invalid answer, or
  /// one longer than 1 MiB).
  [[nodiscard]] boost::asio::awaitable<EngineReply> get(std::string_view step,
                                                        std::string_view path,
                                                        base::Deadline deadline) const;
  /// Sends a JSON body; none if it is empty.
  [[nodiscard]] boost::asio::awaitable<EngineReply> post(std::string_view step,
                                                         std::string_view path,
                                                         std::string_view body,
                                                         base::Deadline deadline) const;

  /// nullopt if the path answers with 200; otherwise the reason in one line.
  [[nodiscard]] boost::asio::awaitable<std::optional<std::string>> check_health(
      std::string_view path, base::Deadline deadline) const;

  /// Generates one token with the first model of /v1/models, whose name is queried once. Throws
  /// kSoftware for an answer without a token; otherwise as get().
  [[nodiscard]] boost::asio::awaitable<void> prove(base::Deadline deadline);

  /// Whether two gauges of /metrics, each summed over its series, are zero; nullopt if one is
  /// missing. The names must be constants.
  [[nodiscard]] boost::asio::awaitable<std::optional<bool>> is_idle(std::string_view running,
                                                                    std::string_view waiting,
                                                                    base::Deadline deadline) const;

  /// The counter `name` of /metrics, summed over its series; nullopt if it is missing.
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

/// The interval of queries while waiting for a state of the engine.
inline constexpr base::Duration kEngineQueryInterval = std::chrono::milliseconds(10);

/// The JSON object in an answer's body; empty if the body is not an object, or is nested too
/// deeply.
nlohmann::json object_in(std::string_view body);

/// The string at a path of nested members in that object; nullopt if it is missing.
std::optional<std::string> text_at(std::string_view body, std::initializer_list<const char*> path);

/// The error in an answer's body, as one short line: the message of a JSON error in one of the
/// usual formats, otherwise the text itself.
std::string reason_in(std::string_view body);

/// The last line of a command's output, as one short line.
std::string last_line(std::string_view text);

}  // namespace fo::engine
