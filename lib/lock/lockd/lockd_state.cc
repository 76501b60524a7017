#include "lock/lockd/lockd_state.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "json/object.h"
#include "lock/grant.h"
#include "os/file/file.h"
#include "os/file/input.h"
#include "os/process/process.h"
#include "text/time_text.h"

namespace fo::lock {
namespace {

using nlohmann::json;

// Large enough for the processes of 4096 connections.
constexpr base::ByteCount kMaxStateBytes = base::kMiB;

// No count reaches this, whether from a claim or from the time: a higher generation in the file
// would leave no room for later ones.
constexpr std::uint64_t kMaxRecordedGeneration = kMaxClaim + kMaxClaim / 2;

std::uint64_t number(const json& value, std::uint64_t most) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most) {
    throw std::invalid_argument("number");
  }
  return value.get<std::uint64_t>();
}

RecordedProcess read_process(const json& object) {
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t pid = number(object.at("pid"), std::numeric_limits<pid_t>::max());
  return {static_cast<pid_t>(pid), number(object.at("start_time"), kMax),
          number(object.at("pid_ns"), kMax)};
}

text::WallTime read_time(std::string text) {
  constexpr std::string_view kWholeSeconds = "2026-02-17T10:05:30Z";
  if (text.size() == kWholeSeconds.size()) text.insert(text.size() - 1, ".000");
  const auto time = text::parse_time(text);
  if (!time) throw std::invalid_argument("time");
  return *time;
}

// The suffix that mkostemp appends. Names chosen by people mostly have characters of one kind
// (state.backup, state.202611) and are kept.
bool is_temporary_suffix(std::string_view suffix) {
  const auto all = [&](int (*kind)(int)) {
    return std::all_of(suffix.begin(), suffix.end(),
                       [&](char c) { return kind(static_cast<unsigned char>(c)) != 0; });
  };
  return suffix.size() == 6 && all(::isalnum) && !all(::islower) && !all(::isdigit);
}

void remove_temporaries(const std::string& path) {
  const std::filesystem::path file(path);
  const std::string prefix = file.filename().string() + ".";
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  std::error_code ignored;
  for (std::filesystem::directory_iterator each(folder, ignored), end; each != end;
       each.increment(ignored)) {
    const std::string name = each->path().filename().string();
    struct stat info {};
    if (name.starts_with(prefix) && is_temporary_suffix(name.substr(prefix.size())) &&
        ::lstat(each->path().c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
        info.st_uid == ::geteuid()) {
      ::unlink(each->path().c_str());
    }
  }
}

}  // namespace

std::string encode_state(const LockdState& state) {
  json object{{"holder", fo::json::or_null(state.holder)},
              {"granted_at", nullptr},
              {"generation", state.generation},
              {"processes", json::array()}};
  if (state.last_generation > state.generation) object["last_generation"] = state.last_generation;
  if (state.holder || state.last_holder) object["granted_at"] = text::format_time(state.granted_at);
  if (!state.token.empty()) object["token"] = state.token;
  if (state.last_holder) object["last_holder"] = *state.last_holder;
  if (state.holder) {
    if (state.connections) object["connections"] = *state.connections;
    if (state.expiry) object["expiry_ms"] = state.expiry->count();
    for (const RecordedProcess& process : state.processes) {
      object["processes"].push_back(
          {{"pid", process.pid}, {"start_time", process.start_time}, {"pid_ns", process.pid_ns}});
    }
  }
  return fo::json::dump(object) + "\n";
}

std::optional<LockdState> decode_state(std::string_view bytes) {
  try {
    const json object = fo::json::parse_object(bytes, kMaxStateBytes);
    LockdState state;
    const json nothing(std::uint64_t{0});
    state.generation = number(object.value("generation", nothing), kMaxRecordedGeneration);
    state.last_generation = std::max(
        state.generation, number(object.value("last_generation", nothing), kMaxRecordedGeneration));
    const json& holder = object.at("holder");
    const bool has_last = holder.is_null() && object.contains("last_holder");
    if (holder.is_null() && !has_last) return state;
    // Our files always have a generation above 0.
    const bool without = state.generation == 0;
    if (without && (has_last || object.contains("generation"))) return std::nullopt;
    state.granted_at = read_time(object.at("granted_at").get<std::string>());
    std::optional<std::string>& id = has_last ? state.last_holder : state.holder;
    id = (has_last ? object.at("last_holder") : holder).get<std::string>();
    check_lock_id(*id);
    if (object.contains("token")) {
      state.token = object["token"].get<std::string>();
      if (!is_token(state.token)) return std::nullopt;
    }
    if (has_last) return state;
    for (const json& each : object.value("processes", json::array())) {
      state.processes.push_back(read_process(each));
    }
    if (object.contains("connections")) {
      state.connections = number(object["connections"], kMaxGeneration);
    }
    if (object.contains("expiry_ms")) {
      constexpr auto kMax = static_cast<std::uint64_t>(kMaxExpiry.count());
      state.expiry = std::chrono::milliseconds(number(object["expiry_ms"], kMax));
    }
    return state;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

LoadedState load_state(const std::string& path) {
  std::string bytes;
  try {
    const std::string what = "read " + base::quoted(path);
    const base::UniqueFd file = os::open_plain_file(path, O_RDONLY, what);
    bytes = os::read_all(file.get(), what, kMaxStateBytes);
  } catch (const base::Error& error) {
    if (error.code() == std::errc::no_such_file_or_directory) return {};
    if (error.status() != base::ExitStatus::kBadData) throw;
    return {LoadedState::Kind::kDamaged};
  }
  const auto state = decode_state(bytes);
  if (!state) return {LoadedState::Kind::kDamaged, {}, std::move(bytes)};
  return {LoadedState::Kind::kState, *state, std::move(bytes)};
}

void write_state(const std::string& path, const std::string& bytes) {
  constexpr mode_t kOwnerOnly = 0600;
  os::write_file_atomic(path, bytes, kOwnerOnly);
}

void prepare_state(const std::string& path, const LoadedState& loaded) {
  remove_temporaries(path);
  const bool is_new = loaded.kind == LoadedState::Kind::kNone;
  write_state(path, is_new ? encode_state({}) : loaded.bytes);
}

std::optional<RecordedProcess> describe_process(pid_t pid) {
  if (pid <= 0) return std::nullopt;
  const auto start_time = os::process_start_time(pid);
  if (!start_time) return std::nullopt;
  return RecordedProcess{pid, *start_time, os::own_pid_namespace()};
}

std::optional<base::UniqueFd> open_running(const RecordedProcess& process) {
  if (process.pid <= 0 || process.pid_ns != os::own_pid_namespace()) return std::nullopt;
  return open_running(process.pid, process.start_time,
                      base::Deadline::after(base::Duration::zero()));
}

}  // namespace fo::lock
