#include "canary/check/engine_client.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "fleet/engine_query.h"
#include "http/sse.h"
#include "json/object.h"
#include "net/address.h"
#include "os/file/random.h"

namespace fo::canary {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;
using Clock = Deadline::Clock;

constexpr char kWhat[] = "check an engine";
constexpr std::size_t kMaxErrorBytes = 64 * 1024;
// Limit of a whole stream: several KiB for each token.
constexpr std::size_t kMaxStreamBytes = 16 * 1024 * 1024;
constexpr std::size_t kSaltBytes = 16;

// `is_connected` says whether the connection was open when the failure occurred.
AskError ask_error_of(const Error& error, bool is_connected) {
  if (base::is_exhausted(error.code())) return AskError::kRefused;
  switch (error.status()) {
    case ExitStatus::kTryAgain:
      return is_connected ? AskError::kLate : AskError::kDown;
    case ExitStatus::kUnavailable:
      return is_connected ? AskError::kBroken : AskError::kDown;
    case ExitStatus::kProtocol:
      return AskError::kBroken;
    default:
      return AskError::kRefused;
  }
}

AskError ask_error_of(int status) {
  if (status == 429 || status == 503 || status == 529) return AskError::kBusy;
  return status >= 400 && status < 500 ? AskError::kRefused : AskError::kBroken;
}

std::string body_of(const Question& question, const std::string& model) {
  nlohmann::json body = {{"model", model},
                         {"max_tokens", question.max_tokens},
                         {"stream", true},
                         {"return_token_ids", true},
                         {"cache_salt", os::random_hex(kSaltBytes)},
                         {"temperature", question.uses_sampler ? 1 : 0}};
  if (question.prompt.empty()) {
    body["prompt"] = question.text;
  } else {
    body["prompt"] = question.prompt;
  }
  if (question.has_logprobs) body["logprobs"] = kTopTokens;
  if (question.uses_sampler) {
    body["top_k"] = 1;
    body["seed"] = os::random_bits() >> 33;
  }
  return fo::json::dump(body);
}

// Reads the stream until the answer is complete.
awaitable<void> read_answer(http::Connection& connection, AnswerReader& reader, Reply& reply,
                            Clock::time_point sent, Deadline first_by, Deadline deadline) {
  http::SseReader events;
  std::string space(16384, '\0');
  std::size_t total = 0;
  while (!reader.is_done()) {
    const bool has_begun = !reader.answer().tokens.empty();
    const Deadline until = has_begun ? deadline : first_by;
    const std::size_t count = co_await connection.read_some(space, until);
    if (count == 0) throw fo::json::Misfit("the answer ends before its finish reason");
    total += count;
    if (total > kMaxStreamBytes) throw fo::json::Misfit("the answer is too long");
    std::string_view bytes(space.data(), count);
    while (const auto event = events.next(bytes)) reader.add(event->data);
    if (!has_begun && !reader.answer().tokens.empty()) reply.first_token = Clock::now() - sent;
  }
}

}  // namespace

EngineAddress make_engine_address(const std::string& url, const std::optional<net::TlsFiles>& tls,
                                  http::Fields headers, std::string model) {
  const net::Url parsed = net::parse_url(url);
  return {.origin = http::make_origin(parsed, tls),
          .base_path = net::base_path(parsed),
          .headers = std::move(headers),
          .model = std::move(model)};
}

awaitable<Probe> probe(EngineAddress engine, bool asks_health, Deadline deadline) {
  Probe result;
  bool is_connected = false;
  try {
    const std::string what = kWhat;
    const auto connection = co_await http::Connection::open(engine.origin, deadline, what);
    is_connected = true;
    if (!asks_health) co_return result;
    std::string target = engine.base_path + "/health";
    const fleet::EnginePage health = co_await fleet::get_page(
        *connection, std::move(target), engine.headers, kMaxErrorBytes, deadline);
    if (health.status != 200) {
      result.error = AskError::kBroken;
      result.reason = "/health: status " + std::to_string(health.status);
    }
  } catch (const Error& error) {
    result.error = ask_error_of(error, is_connected);
    result.is_connection_refused = !is_connected && error.code() == std::errc::connection_refused;
    result.reason = error.what();
  }
  co_return result;
}

awaitable<std::optional<EngineLoad>> ask_load(EngineAddress engine, Deadline deadline) {
  std::optional<EngineLoad> load;
  try {
    load = co_await fleet::query_engine_load(engine.origin, engine.base_path, engine.headers,
                                             deadline);
  } catch (const Error&) {
    // The load of an engine that cannot be queried is unknown.
  }
  co_return load;
}

awaitable<Reply> ask(EngineAddress engine, Question question, base::Duration first_token,
                     Deadline deadline) {
  Reply reply;
  Clock::time_point sent = Clock::now();
  AnswerReader reader(question.max_tokens, question.has_logprobs);
  bool is_connected = false;
  try {
    const std::string what = kWhat;
    const auto connection = co_await http::Connection::open(engine.origin, deadline, what);
    is_connected = true;
    http::RequestHead head;
    head.method = "POST";
    head.target = engine.base_path + "/v1/completions";
    head.headers = engine.headers;
    head.headers.emplace_back("Content-Type", "application/json");
    head.headers.emplace_back("Accept-Encoding", "identity");
    const std::string body = body_of(question, engine.model);
    sent = Clock::now();
    const Deadline first_by = Deadline::after(first_token).sooner(deadline);
    co_await connection->send(head, body, first_by);
    const http::ResponseHead answered = co_await connection->read_head(first_by);
    if (answered.status == 200) {
      co_await read_answer(*connection, reader, reply, sent, first_by, deadline);
      reply.answer = reader.answer();
      if (!reply.answer.is_complete()) {
        reply.error = AskError::kBroken;
        reply.reason = "the answer ends with " + base::quoted(reply.answer.finish);
      }
    } else {
      std::string text;
      std::string space(kMaxErrorBytes, '\0');
      while (text.size() < kMaxErrorBytes) {
        const std::size_t count = co_await connection->read_some(space, first_by);
        if (count == 0) break;
        text.append(space, 0, count);
      }
      const std::string message = error_message_of(text);
      reply.error = ask_error_of(answered.status);
      reply.reason =
          "status " + std::to_string(answered.status) + (message.empty() ? "" : ": " + message);
    }
  } catch (const UnnamedTokens& unnamed) {
    reply.error = AskError::kUnnamed;
    reply.reason = unnamed.what();
  } catch (const fo::json::Misfit& misfit) {
    reply.error = AskError::kBroken;
    reply.reason = misfit.what();
  } catch (const Error& error) {
    reply.error = ask_error_of(error, is_connected);
    reply.reason = reply.error == AskError::kLate
                       ? std::string(reader.answer().tokens.empty() ? "no first token in time"
                                                                    : "no whole answer in time")
                       : error.what();
  }
  reply.whole = Clock::now() - sent;
  co_return reply;
}

}  // namespace fo::canary
