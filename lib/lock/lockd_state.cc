#include "lock/lockd_state.h"

#include <poll.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "lock/grant.h"
#include "os/file.h"
#include "os/process.h"

namespace fo::lock {
namespace {

using nlohmann::json;

// Room for the processes of 4096 connections.
constexpr base::ByteCount kMostStateBytes = base::kMiB;

std::uint64_t number(const json& value, std::uint64_t most) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most) {
    throw std::invalid_argument("number");
  }
  return value.get<std::uint64_t>();
}

RecordedProcess read_process(const json& object) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t pid = number(object.at("pid"), std::numeric_limits<pid_t>::max());
  return {static_cast<pid_t>(pid), number(object.at("start_time"), kMost),
          number(object.at("pid_ns"), kMost)};
}

}  // namespace

std::string encode_state(const LockdState& state) {
  json object{{"holder", nullptr},
              {"granted_at", nullptr},
              {"generation", state.generation},
              {"processes", json::array()}};
  if (state.last_generation > state.generation) object["last_generation"] = state.last_generation;
  if (state.holder) {
    object["holder"] = *state.holder;
    object["granted_at"] = format_time(state.granted_at);
    object["connections"] = state.connections;
    for (const RecordedProcess& process : state.processes) {
      object["processes"].push_back(
          {{"pid", process.pid}, {"start_time", process.start_time}, {"pid_ns", process.pid_ns}});
    }
  }
  return object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::optional<LockdState> decode_state(std::string_view bytes) {
  try {
    const json object = json::parse(bytes);
    LockdState state;
    state.generation = number(object.at("generation"), kMostGeneration);
    state.last_generation =
        std::max(state.generation,
                 number(object.value("last_generation", json(std::uint64_t{0})), kMostGeneration));
    if (object.at("holder").is_null()) return state;
    state.holder = object.at("holder").get<std::string>();
    check_lock_id(*state.holder);
    const auto granted_at = parse_time(object.at("granted_at").get<std::string>());
    if (!granted_at || state.generation == 0) return std::nullopt;
    state.granted_at = *granted_at;
    for (const json& each : object.value("processes", json::array())) {
      state.processes.push_back(read_process(each));
    }
    const std::size_t least = std::max<std::size_t>(state.processes.size(), 1);
    state.connections = number(object.value("connections", json(least)), kMostGeneration);
    return state;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

LoadedState load_state(const std::string& path) {
  std::string bytes;
  try {
    bytes = os::read_file(path, kMostStateBytes);
  } catch (const base::Error& error) {
    if (error.code() == std::errc::no_such_file_or_directory) return {};
    if (error.status() != base::ExitStatus::kBadData) throw;
    return {LoadedState::Kind::kDamaged};
  }
  const auto state = decode_state(bytes);
  if (!state) return {LoadedState::Kind::kDamaged};
  return {LoadedState::Kind::kState, *state};
}

std::optional<RecordedProcess> describe_process(pid_t pid) {
  if (pid <= 0) return std::nullopt;
  const auto start_time = os::process_start_time(pid);
  if (!start_time) return std::nullopt;
  return RecordedProcess{pid, *start_time, os::own_pid_namespace()};
}

std::optional<base::UniqueFd> open_running(const RecordedProcess& process) {
  if (process.pid <= 0 || process.pid_ns != os::own_pid_namespace()) return std::nullopt;
  auto pidfd = os::open_pidfd(process.pid);
  if (!pidfd || os::process_start_time(process.pid) != process.start_time) return std::nullopt;
  // A zombie still has its entry in /proc; its pidfd says that it has ended.
  pollfd ended{pidfd->get(), POLLIN, 0};
  if (::poll(&ended, 1, 0) > 0) return std::nullopt;
  return pidfd;
}

}  // namespace fo::lock
