#include "engine/pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "engine/metrics.h"
#include "engine/status_socket.h"
#include "gms/client/rpc_client.h"
#include "http/client.h"
#include "http/message.h"
#include "json/object.h"
#include "lock/grant.h"
#include "lock/lock_status.h"
#include "os/pause.h"
#include "text/time_text.h"

namespace fo::engine {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;
using nlohmann::json;

constexpr base::Duration kAnswerTime = std::chrono::seconds(2);
// Time for the active engine to query all others whether one is in standby.
constexpr base::Duration kSwitchTime = std::chrono::seconds(30);
constexpr base::Duration kStatusInterval = std::chrono::milliseconds(20);
constexpr std::string_view kSuffix = ".sock";
// In seconds since 1970; a clock in nanoseconds overflows shortly after.
constexpr double kLatestTime = 9e9;
constexpr base::ByteCount kMaxStatusBytes = base::kMiB;

std::string url_of(const std::string& socket, const std::string& path) {
  return "unix:" + socket + ":" + path;
}

// The status in an answer; nullopt if it is invalid.
std::optional<json> parse_status(const http::Response& response) {
  if (response.status != 200) return std::nullopt;
  std::optional<json> object = fo::json::find_object(response.body, kMaxStatusBytes);
  if (!object || !object->value("state", json()).is_string() ||
      !object->value("id", json()).is_string()) {
    return std::nullopt;
  }
  return object;
}

http::FetchOptions limited() { return {.response_limit = kMaxStatusBytes}; }

// The id in the name of a status socket.
std::string id_of(const lock::LockUri& lock, const std::string& socket) {
  const std::size_t begin = lock.path.size() + 1;
  return socket.substr(begin, socket.size() - begin - kSuffix.size());
}

// The status of each engine; an engine that does not answer counts as dead.
std::vector<json> query_engines(const lock::LockUri& lock) {
  std::vector<json> engines;
  for (const std::string& socket : find_status_sockets(lock)) {
    std::optional<json> status;
    std::string reason = "the answer is invalid";
    try {
      status = parse_status(
          http::fetch("GET", url_of(socket, "/status"), Deadline::after(kAnswerTime), limited()));
    } catch (const Error& error) {
      reason = error.what();
    }
    // The socket belongs to another lock, whose path begins with ours.
    if (status && (*status)["id"] != id_of(lock, socket)) continue;
    if (!status) {
      status = json{{"id", id_of(lock, socket)}, {"state", "dead"}, {"reason", reason}};
    }
    (*status)["socket"] = socket;
    engines.push_back(std::move(*status));
  }
  return engines;
}

json query_gms(const std::string& socket) {
  json object{{"socket", socket}, {"state", nullptr}};
  try {
    gms::RpcClient rpc = gms::RpcClient::connect(socket, Deadline::after(kAnswerTime));
    const auto state = rpc.runtime_state();
    object["state"] = state.state;
    object["memory_layout_hash"] = state.memory_layout_hash.value();
    object["allocation_count"] = state.allocation_count;
    object["ro_session_count"] = state.ro_session_count;
  } catch (const Error& error) {
    object["reason"] = error.what();
  }
  return object;
}

std::string member_text(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return "-";
  // The text is from a peer and is printed on a terminal.
  return base::without_controls(found->is_string() ? found->get<std::string>()
                                                   : fo::json::dump(*found));
}

// The value is from a peer and may be any JSON.
std::string time_text(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return "-";
  const std::chrono::duration<double> since(std::clamp(found->get<double>(), 0.0, kLatestTime));
  return text::format_time(std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(since)));
}

std::string phases_text(const json& engine) {
  const auto failover = engine.find("last_failover");
  if (failover == engine.end() || !failover->is_object()) return {};
  std::string text = "  last failover: generation " + member_text(*failover, "generation") +
                     ", active at " + time_text(*failover, "active_at");
  const auto phases = failover->find("phases");
  if (phases == failover->end() || !phases->is_object()) return text + "\n";
  for (const Phase phase : kAllPhases) {
    const std::string_view name = phase_name(phase);
    const auto took = phases->find(name);
    if (took == phases->end() || !took->is_number()) continue;
    text += fmt::format(", {} {:.1f} ms", name, took->get<double>() * 1000);
  }
  return text + "\n";
}

std::string to_text(const lock::LockUri& lock, const json& pair) {
  std::string text = "lock: " + lock.path + "\nholder: " + member_text(pair, "holder") +
                     "\ngeneration: " + member_text(pair, "generation") + "\n";
  for (const json& engine : pair["engines"]) {
    text += "engine " + member_text(engine, "id") + ": " + member_text(engine, "state");
    if (engine.contains("since")) text += " since " + time_text(engine, "since");
    if (engine.contains("pid")) text += ", process " + member_text(engine, "pid");
    if (engine.contains("reason")) text += ", " + member_text(engine, "reason");
    text += "\n" + phases_text(engine);
  }
  for (const json& gms : pair["gms"]) {
    text += "gms " + member_text(gms, "socket") + ": ";
    text += gms.contains("reason")
                ? member_text(gms, "reason")
                : member_text(gms, "state") + ", layout " + member_text(gms, "memory_layout_hash") +
                      ", " + member_text(gms, "ro_session_count") + " readers";
    text += "\n";
  }
  return text;
}

}  // namespace

std::string handover_path(const lock::LockUri& lock) { return lock.path + ".handover"; }

std::vector<std::string> find_status_sockets(const lock::LockUri& lock) {
  namespace fs = std::filesystem;
  std::vector<std::string> found;
  const fs::path path(lock.path);
  const std::string prefix = path.filename().native() + ".";
  std::error_code error;
  for (fs::directory_iterator at(path.parent_path(), error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().native();
    std::error_code unknown;
    if (name.size() > prefix.size() + kSuffix.size() && name.starts_with(prefix) &&
        name.ends_with(kSuffix) && at->is_socket(unknown)) {
      found.push_back(at->path().native());
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw Error(ExitStatus::kNotPermitted,
                "look for engines beside lock " + base::quoted(lock.path), error);
  }
  std::sort(found.begin(), found.end());
  return found;
}

awaitable<bool> has_standby(lock::LockUri lock, std::string id) {
  const std::vector<std::string> sockets = find_status_sockets(lock);
  for (const std::string& socket : sockets) {
    if (socket == status_socket_path(lock, id)) continue;
    std::optional<json> status;
    try {
      const Deadline deadline = Deadline::after(kAnswerTime);
      std::string url = url_of(socket, "/status");
      http::FetchOptions options = limited();
      status = parse_status(co_await http::async_fetch("GET", url, deadline, options));
    } catch (const Error&) {  // the engine is dead or unreachable
    }
    if (status && (*status)["state"] == "standby" && (*status)["id"] == id_of(lock, socket)) {
      co_return true;
    }
  }
  co_return false;
}

PairStatus read_pair(const lock::LockUri& lock) {
  json pair{{"lock", lock.path}, {"holder", nullptr}, {"generation", nullptr}};
  PairStatus status;
  try {
    const lock::LockStatus held = lock::read_lock_status(lock, kAnswerTime);
    if (held.held) pair["holder"] = held.holder;
    if (held.last_generation) pair["generation"] = *held.last_generation;
  } catch (const Error& error) {
    // If the lock's path does not exist, nothing else can be found either.
    if (error.status() == ExitStatus::kNoInput) throw;
    pair["reason"] = error.what();
  }
  pair["engines"] = json::array();
  std::map<std::string, bool> sockets;
  for (json& engine : query_engines(lock)) {
    if (engine["state"] == "active") status.active = true;
    if (const auto gms = engine.find("gms"); gms != engine.end() && gms->is_array()) {
      for (const json& place : *gms) {
        if (place.is_object() && place.contains("socket") && place["socket"].is_string()) {
          sockets[place["socket"].get<std::string>()] = true;
        }
      }
    }
    pair["engines"].push_back(std::move(engine));
  }
  pair["gms"] = json::array();
  for (const auto& [socket, known] : sockets) pair["gms"].push_back(query_gms(socket));
  status.text = to_text(lock, pair);
  status.json = fo::json::dump(pair);
  return status;
}

std::string switch_over(const lock::LockUri& lock, const Deadline& deadline) {
  const std::string what = "switch over the engines of lock " + base::quoted(lock.path);
  const auto active_of = [&]() -> std::optional<json> {
    for (json& engine : query_engines(lock)) {
      if (engine["state"] == "active") return std::move(engine);
    }
    return std::nullopt;
  };
  const std::optional<json> before = active_of();
  if (!before) throw Error(ExitStatus::kUnavailable, what + ": no engine is active");
  const std::string id = (*before)["id"];
  const http::Response response =
      http::fetch("POST", url_of((*before)["socket"], "/switchover"),
                  deadline.sooner(Deadline::after(kSwitchTime)), limited());
  if (response.status != 202) {
    std::string reason = base::without_controls(http::error_message_in(response.body));
    if (reason.empty()) reason = "status " + std::to_string(response.status);
    throw Error(ExitStatus::kTryAgain, what + ": " + base::quoted(id) + " refuses: " + reason);
  }
  for (;;) {
    const std::optional<json> now = active_of();
    if (now && (*now)["id"] != id) return (*now)["id"];
    if (now && (*now)["id"] == id && now->value("switching", json()) == false &&
        member_text(*now, "generation") == member_text(*before, "generation")) {
      throw Error(ExitStatus::kTryAgain, what + ": " + base::quoted(id) + " resumed serving");
    }
    if (now && member_text(*now, "generation") != member_text(*before, "generation")) {
      throw Error(ExitStatus::kTryAgain,
                  what + ": no other engine took over; " + base::quoted(id) + " is active again");
    }
    if (deadline.expired()) {
      throw Error(ExitStatus::kTryAgain, what + ": no other engine became active in time");
    }
    os::pause_for(kStatusInterval, deadline);
  }
}

}  // namespace fo::engine
