#include "engine/drivers/engine_api.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "http/client.h"
#include "http/message.h"
#include "json/object.h"
#include "metrics/sum_of_samples.h"
#include "net/address.h"

namespace fo::engine {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;
using nlohmann::json;

constexpr base::ByteCount kMaxAnswerBytes = base::kMiB;
constexpr base::ByteCount kMaxMetricsBytes = 4 * base::kMiB;
constexpr std::size_t kMaxReasonBytes = 200;

// A member of an object; null if it is missing.
const json& member(const json& object, const char* name) {
  static const json kNone;
  const json* found = fo::json::find(object, name);
  return found == nullptr ? kNone : *found;
}

const json& first(const json& array) {
  static const json kNone;
  return array.is_array() && !array.empty() ? array.front() : kNone;
}

// Why a completion with status 200 is no proof; nullopt if it is one.
std::optional<std::string> missing_token(const std::string& body) {
  const json answer = object_in(body);
  if (!member(answer, "error").is_null()) return reason_in(body);
  const json& choice = first(member(answer, "choices"));
  if (!choice.is_object()) return "no choices in the answer";
  const json& finish = member(choice, "finish_reason");
  if (finish == "abort" || finish == "error") return "the generation ended with " + finish.dump();
  // If the first token is the end token, it is not counted: an engine may ignore "ignore_eos".
  if (finish == "stop") return std::nullopt;
  const json& count = member(member(answer, "usage"), "completion_tokens");
  const json& text = member(choice, "text");
  const bool has_token = count.is_number()
                             ? count > 0
                             : text.is_string() && !text.get_ref<const std::string&>().empty();
  return has_token ? std::nullopt : std::optional<std::string>("no token in the answer");
}

}  // namespace

Error EngineReply::refusal() const {
  const std::string reason = reason_in(body);
  const bool forbidden = status == 401 || status == 403;
  return failure(forbidden ? ExitStatus::kConfig : ExitStatus::kSoftware,
                 fmt::format("status {}{}{}", status, reason.empty() ? "" : ": ", reason));
}

Error EngineReply::failure(ExitStatus kind, std::string_view reason) const {
  return Error(kind, fmt::format("{}: {}", what, reason));
}

EngineApi::EngineApi(const std::string& url) : url_(url) {
  const net::Url parsed = net::parse_url(url);
  if (parsed.target != "/") {
    throw Error(ExitStatus::kUsage, "URL " + base::quoted(url) + ": an engine's URL has no path");
  }
  if (parsed.is_tls) {
    throw Error(ExitStatus::kUsage,
                "URL " + base::quoted(url) + ": TLS is not supported for an engine");
  }
  if (!parsed.socket_path.empty()) {
    url_ = "unix:" + parsed.socket_path + ":";
  } else {
    // The engine runs on this machine, so no name needs to be resolved.
    net::parse_address(net::to_string(parsed.address));
    if (url_.ends_with('/')) url_.pop_back();
  }
}

awaitable<EngineReply> EngineApi::send(std::string step, std::string method, std::string path,
                                       std::string body, Deadline deadline,
                                       base::ByteCount limit) const {
  const std::string url = url_ + path;
  http::FetchOptions options;
  options.body = std::move(body);
  options.response_limit = limit;
  EngineReply answer;
  answer.what = fmt::format("{}: {} {}", step, method, url);
  try {
    http::Response response = co_await http::async_fetch(method, url, deadline, options);
    answer.status = response.status;
    answer.body = std::move(response.body);
  } catch (const Error& error) {
    const bool garbage = error.status() == ExitStatus::kProtocol;
    throw Error(garbage ? ExitStatus::kSoftware : error.status(), step + ": " + error.what());
  }
  co_return answer;
}

awaitable<EngineReply> EngineApi::get(std::string_view step, std::string_view path,
                                      Deadline deadline) const {
  return send(std::string(step), "GET", std::string(path), "", deadline, kMaxAnswerBytes);
}

awaitable<EngineReply> EngineApi::post(std::string_view step, std::string_view path,
                                       std::string_view body, Deadline deadline) const {
  return send(std::string(step), "POST", std::string(path), std::string(body), deadline,
              kMaxAnswerBytes);
}

awaitable<std::optional<std::string>> EngineApi::check_health(std::string_view path,
                                                              Deadline deadline) const {
  std::optional<std::string> reason;
  try {
    const EngineReply answer = co_await get(kHealthStep, path, deadline);
    if (answer.status != 200) reason = answer.refusal().what();
  } catch (const Error& error) {
    reason = error.what();
  }
  co_return reason;
}

awaitable<std::string> EngineApi::model(Deadline deadline) const {
  const EngineReply answer = co_await get(kProveStep, "/v1/models", deadline);
  if (!answer.ok()) throw answer.refusal();
  const json models = object_in(answer.body);
  const json& name = member(first(member(models, "data")), "id");
  if (!name.is_string()) throw answer.failure(ExitStatus::kSoftware, "no model in the answer");
  co_return name.get<std::string>();
}

awaitable<void> EngineApi::prove(Deadline deadline) {
  if (model_.empty()) model_ = co_await model(deadline);
  json request;
  request["model"] = model_;
  request["prompt"] = "1";
  request["max_tokens"] = 1;
  request["ignore_eos"] = true;
  request["temperature"] = 0;
  const std::string body = request.dump();
  const EngineReply answer = co_await post(kProveStep, "/v1/completions", body, deadline);
  if (!answer.ok()) {
    // The next attempt may reach another engine.
    model_.clear();
    throw answer.refusal();
  }
  const std::optional<std::string> reason = missing_token(answer.body);
  if (reason) throw answer.failure(ExitStatus::kSoftware, *reason);
}

awaitable<EngineReply> EngineApi::metrics(std::string_view step, Deadline deadline) const {
  return send(std::string(step), "GET", "/metrics", "", deadline, kMaxMetricsBytes);
}

awaitable<std::optional<double>> EngineApi::count(std::string_view name, Deadline deadline) const {
  const EngineReply answer = co_await metrics(kCountStep, deadline);
  if (answer.status != 200) co_return std::nullopt;
  co_return metrics::sum_of_samples(answer.body, name);
}

awaitable<std::optional<bool>> EngineApi::is_idle(std::string_view running,
                                                  std::string_view waiting,
                                                  Deadline deadline) const {
  const EngineReply answer = co_await metrics(kIdleStep, deadline);
  const auto run = metrics::sum_of_samples(answer.body, running);
  const auto wait = metrics::sum_of_samples(answer.body, waiting);
  if (answer.status != 200 || !run || !wait) co_return std::nullopt;
  co_return *run + *wait == 0;
}

json object_in(std::string_view body) {
  return fo::json::find_object(body, kMaxAnswerBytes).value_or(json::object());
}

std::optional<std::string> text_at(std::string_view body, std::initializer_list<const char*> path) {
  const json answer = object_in(body);
  const json* at = &answer;
  for (const char* name : path) at = &member(*at, name);
  if (!at->is_string()) return std::nullopt;
  return at->get<std::string>();
}

std::string reason_in(std::string_view body) {
  const std::string message = http::error_message_in(body);
  return base::one_line(message.empty() ? body : message, kMaxReasonBytes);
}

std::string last_line(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return base::one_line(text.substr(text.rfind('\n') + 1), kMaxReasonBytes);
}

}  // namespace fo::engine
