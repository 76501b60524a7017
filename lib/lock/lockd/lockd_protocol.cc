#include "lock/lockd/lockd_protocol.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hex.h"
#include "json/object.h"
#include "text/time_text.h"

namespace fo::lock {
namespace {

using base::ExitStatus;
using fo::json::or_null;
using nlohmann::json;
using std::chrono::milliseconds;

const json& member(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw fo::json::Misfit(std::string("missing member ") + key);
  return *found;
}

std::uint64_t number(const json& value, std::uint64_t least, std::uint64_t most) {
  if (!value.is_number_unsigned()) throw fo::json::Misfit("expected a number");
  const auto result = value.get<std::uint64_t>();
  if (result < least || result > most) throw fo::json::Misfit("number out of range");
  return result;
}

std::string string_of(const json& value) {
  if (!value.is_string()) throw fo::json::Misfit("expected a string");
  return value.get<std::string>();
}

milliseconds duration(const json& value) {
  constexpr std::uint64_t kCentury = 100ULL * 366 * 24 * 3600 * 1000;
  return milliseconds(number(value, 0, kCentury));
}

milliseconds lease_time(const json& value) {
  const auto count = [](milliseconds time) { return static_cast<std::uint64_t>(time.count()); };
  return milliseconds(number(value, count(kMinExpiry), count(kMaxExpiry)));
}

pid_t pid(const json& value) {
  return static_cast<pid_t>(number(value, 1, std::numeric_limits<pid_t>::max()));
}

text::WallTime time(const json& value) {
  const auto result = text::parse_time(string_of(value));
  if (!result) throw fo::json::Misfit("expected a time");
  return *result;
}

template <typename Read>
auto optional(const json& value, const Read& read) -> std::optional<decltype(read(value))> {
  if (value.is_null()) return std::nullopt;
  return read(value);
}

const json& list_in(const json& object, const char* key) {
  const json& value = member(object, key);
  if (!value.is_array() || value.size() > kMaxListed)
    throw fo::json::Misfit("expected a short list");
  return value;
}

// `limit` counts the newline, which `line` does not contain.
template <typename Read>
auto decode(std::string_view line, std::size_t limit, const Read& read) {
  const auto what = [line] { return "read message " + base::quoted(line); };
  return fo::json::read_object(line, limit - 1, what, read);
}

// Empty if there is none.
std::string token_of(const json& object) {
  const auto found = object.find("token");
  if (found == object.end()) return {};
  std::string token = string_of(*found);
  if (!is_token(token)) throw fo::json::Misfit("expected a token");
  return token;
}

std::uint64_t generation_of(const json& value) { return number(value, 1, kMaxGeneration); }

StatusAnswer decode_status(const json& object) {
  StatusAnswer answer;
  answer.holder = optional(member(object, "holder"), string_of);
  answer.generation = number(member(object, "generation"), 0, kMaxGeneration);
  answer.granted_at = optional(member(object, "granted_at"), time);
  for (const json& each : list_in(object, "connections")) {
    const json& connected = member(each, "connected");
    if (!connected.is_boolean()) throw fo::json::Misfit("expected true or false");
    answer.connections.push_back({optional(member(each, "pid"), pid), connected.get<bool>()});
  }
  for (const json& each : list_in(object, "waiters")) {
    answer.waiters.push_back(
        {string_of(member(each, "engine_id")), optional(member(each, "pid"), pid)});
  }
  answer.pid_ns = number(member(object, "pid_ns"), 0, std::numeric_limits<std::uint64_t>::max());
  answer.reconnect_window = duration(member(object, "reconnect_window_ms"));
  answer.window_left = optional(member(object, "window_left_ms"), duration);
  for (const json& each : list_in(object, "awaited_pids")) {
    answer.awaited_pids.push_back(pid(each));
  }
  return answer;
}

struct Encode {
  json operator()(const AcquireRequest& request) const {
    json object{{"request", "acquire"}, {"engine_id", request.engine_id}};
    if (request.generation) object["generation"] = *request.generation;
    if (!request.token.empty()) object["token"] = request.token;
    return object;
  }
  json operator()(const StatusRequest&) const { return {{"request", "status"}}; }
  json operator()(const ReleaseRequest&) const { return {{"request", "release"}}; }
  json operator()(const HeartbeatRequest& request) const {
    return {{"request", "heartbeat"}, {"sequence", request.sequence}};
  }

  json operator()(const WaitingAnswer& answer) const {
    return {{"answer", "waiting"},
            {"holder", or_null(answer.holder)},
            {"generation", or_null(answer.generation)},
            {"reconnect_window_ms", answer.reconnect_window.count()}};
  }
  json operator()(const GrantedAnswer& answer) const {
    json object{{"answer", "granted"},
                {"engine_id", answer.engine_id},
                {"generation", answer.generation},
                {"granted_at", text::format_time(answer.granted_at)},
                {"reconnect_window_ms", answer.reconnect_window.count()}};
    if (!answer.token.empty()) object["token"] = answer.token;
    return object;
  }
  json operator()(const RefusedAnswer& answer) const {
    return {{"answer", "refused"}, {"status", to_int(answer.status)}, {"reason", answer.reason}};
  }
  json operator()(const HeartbeatAnswer& answer) const {
    return {{"answer", "heartbeat"},
            {"sequence", answer.sequence},
            {"expiry_ms", answer.expiry.count()}};
  }
  json operator()(const StatusAnswer& answer) const {
    json object{{"answer", "status"},
                {"holder", or_null(answer.holder)},
                {"generation", answer.generation},
                {"granted_at", nullptr},
                {"connections", json::array()},
                {"waiters", json::array()},
                {"pid_ns", answer.pid_ns},
                {"reconnect_window_ms", answer.reconnect_window.count()},
                {"window_left_ms", nullptr},
                {"awaited_pids", json::array()}};
    if (answer.granted_at) object["granted_at"] = text::format_time(*answer.granted_at);
    if (answer.window_left) object["window_left_ms"] = answer.window_left->count();
    const auto first = [](const auto& all) { return std::min(all.size(), kMaxListed); };
    for (std::size_t i = 0; i < first(answer.connections); ++i) {
      const auto& each = answer.connections[i];
      object["connections"].push_back({{"pid", or_null(each.pid)}, {"connected", each.connected}});
    }
    for (std::size_t i = 0; i < first(answer.waiters); ++i) {
      const auto& each = answer.waiters[i];
      object["waiters"].push_back({{"engine_id", each.engine_id}, {"pid", or_null(each.pid)}});
    }
    for (std::size_t i = 0; i < first(answer.awaited_pids); ++i) {
      object["awaited_pids"].push_back(answer.awaited_pids[i]);
    }
    return object;
  }
};

}  // namespace

bool is_token(std::string_view text) { return text.size() == 32 && base::is_hex(text); }

std::string encode_request(const LockdRequest& request) {
  return fo::json::dump(std::visit(Encode{}, request)) + "\n";
}

std::string encode_answer(const LockdAnswer& answer) {
  return fo::json::dump(std::visit(Encode{}, answer)) + "\n";
}

LockdRequest decode_request(std::string_view line) {
  const auto read = [](const json& object) -> LockdRequest {
    const std::string kind = string_of(member(object, "request"));
    if (kind == "status") return StatusRequest{};
    if (kind == "release") return ReleaseRequest{};
    if (kind == "heartbeat") {
      return HeartbeatRequest{number(member(object, "sequence"), 0, kMaxSequence)};
    }
    if (kind != "acquire") throw fo::json::Misfit("unknown request");
    AcquireRequest request{string_of(member(object, "engine_id"))};
    if (object.contains("generation")) {
      request.generation = number(object["generation"], 1, kMaxClaim);
    }
    request.token = token_of(object);
    return request;
  };
  LockdRequest request = decode(line, kMaxRequestBytes, read);
  if (const auto* acquire = std::get_if<AcquireRequest>(&request)) {
    check_lock_id(acquire->engine_id);
  }
  return request;
}

LockdAnswer decode_answer(std::string_view line) {
  const auto read = [](const json& object) -> LockdAnswer {
    const std::string kind = string_of(member(object, "answer"));
    if (kind == "waiting") {
      return WaitingAnswer{optional(member(object, "holder"), string_of),
                           optional(member(object, "generation"), generation_of),
                           duration(member(object, "reconnect_window_ms"))};
    }
    if (kind == "granted") {
      return GrantedAnswer{string_of(member(object, "engine_id")),
                           generation_of(member(object, "generation")),
                           time(member(object, "granted_at")),
                           duration(member(object, "reconnect_window_ms")), token_of(object)};
    }
    if (kind == "refused") {
      return RefusedAnswer{static_cast<ExitStatus>(number(member(object, "status"), 1, 255)),
                           string_of(member(object, "reason"))};
    }
    if (kind == "heartbeat") {
      return HeartbeatAnswer{number(member(object, "sequence"), 0, kMaxSequence),
                             lease_time(member(object, "expiry_ms"))};
    }
    if (kind == "status") return decode_status(object);
    throw fo::json::Misfit("unknown answer");
  };
  return decode(line, kMaxAnswerBytes, read);
}

}  // namespace fo::lock
