#include "lock/grant.h"

#include <poll.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "json/object.h"
#include "os/engine_id.h"
#include "os/process/process.h"

namespace fo::lock {
namespace {

using base::Error;
using base::ExitStatus;
using nlohmann::json;

bool is_blank(std::string_view bytes) {
  return bytes.find_first_not_of(std::string_view("\0 \n", 3)) == std::string_view::npos;
}

bool is_utf8(std::string_view text) {
  try {
    static_cast<void>(json(text).dump());
    return true;
  } catch (const json::type_error&) {
    return false;
  }
}

std::uint64_t number(const json& object, const char* key) {
  const json& value = object.at(key);
  if (!value.is_number_unsigned()) throw std::invalid_argument(key);
  return value.get<std::uint64_t>();
}

}  // namespace

void check_lock_id(std::string_view id) {
  const auto refuse = [&](const std::string& reason) {
    throw Error(ExitStatus::kConfig, "use lock id " + base::quoted(id) + ": " + reason);
  };
  if (id.empty()) refuse("empty");
  if (id.size() > kMaxIdBytes) refuse("longer than " + std::to_string(kMaxIdBytes) + " bytes");
  if (std::any_of(id.begin(), id.end(), base::is_control)) refuse("has control characters");
  if (!is_utf8(id)) refuse("not UTF-8");
}

std::string lock_id_from_environment() {
  return "engine-" + std::to_string(os::engine_id_from_environment());
}

std::string encode_grant(const GrantRecord& record) {
  const json object{{"holder", record.holder},
                    {"generation", record.generation},
                    {"pid", record.pid},
                    {"pid_ns", record.pid_ns},
                    {"start_time", record.start_time},
                    {"inode", record.inode},
                    {"granted_at", record.granted_at},
                    {"host", record.host}};
  std::string text = fo::json::dump(object);
  if (text.size() >= kGrantFileSize) {
    throw Error(ExitStatus::kSoftware, "record the grant to " + base::quoted(record.holder) +
                                           ": longer than " + std::to_string(kGrantFileSize));
  }
  text.resize(kGrantFileSize - 1, ' ');
  return text + '\n';
}

GrantContent decode_grant(std::string_view bytes) {
  GrantContent content;
  if (is_blank(bytes)) return content;
  content.kind = GrantContent::Kind::kDamaged;
  try {
    const json object = fo::json::parse_object(bytes, kGrantFileSize);
    GrantRecord& record = content.record;
    record.holder = object.at("holder").get<std::string>();
    record.generation = number(object, "generation");
    const std::uint64_t pid = number(object, "pid");
    if (pid > std::numeric_limits<pid_t>::max()) return content;
    record.pid = static_cast<pid_t>(pid);
    record.pid_ns = number(object, "pid_ns");
    record.start_time = number(object, "start_time");
    record.inode = number(object, "inode");
    record.granted_at = object.at("granted_at").get<std::string>();
    record.host = object.at("host").get<std::string>();
    if (record.generation == 0 || record.generation > kMaxGeneration) return content;
    content.kind = GrantContent::Kind::kRecord;
  } catch (const std::exception&) {
    content.record = {};
  }
  return content;
}

bool can_be_lock_file(std::string_view content, const GrantContent& record) {
  if (is_blank(content)) return true;
  if (content.size() > kMaxIdBytes + 1) return false;
  // A holder that was killed while it wrote its id may leave the end of a longer one after it.
  const bool is_recorded = record.kind == GrantContent::Kind::kRecord;
  if (is_recorded && content.starts_with(record.record.holder + "\n")) return true;
  if (content.ends_with('\n')) content.remove_suffix(1);
  if (content.starts_with('{') || content.starts_with('[')) return false;
  try {
    check_lock_id(content);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::uint64_t next_generation(const GrantContent& previous, bool lock_file_is_empty,
                              std::chrono::system_clock::time_point now) {
  if (previous.kind == GrantContent::Kind::kRecord) return previous.record.generation + 1;
  if (previous.kind == GrantContent::Kind::kBlank && lock_file_is_empty) return 1;
  const auto ms = std::chrono::floor<std::chrono::milliseconds>(now.time_since_epoch()).count();
  return static_cast<std::uint64_t>(std::max<decltype(ms)>(ms, 1));
}

std::optional<base::UniqueFd> open_running(pid_t pid, std::uint64_t start_time,
                                           const base::Deadline& deadline) {
  auto pidfd = os::open_pidfd(pid);
  if (!pidfd || os::process_start_time(pid) != start_time) return std::nullopt;
  // A zombie still has an entry in /proc, but its pidfd is readable.
  pollfd ended{pidfd->get(), POLLIN, 0};
  if (::poll(&ended, 1, deadline.poll_timeout()) > 0) return std::nullopt;
  return pidfd;
}

HolderState holder_state(const GrantRecord& record, const base::Deadline& deadline) {
  if (record.pid <= 0 || record.pid_ns != os::own_pid_namespace()) return HolderState::kNotVisible;
  return open_running(record.pid, record.start_time, deadline) ? HolderState::kRunning
                                                               : HolderState::kEnded;
}

std::string id_of_lock_file(std::string_view content) {
  return base::without_controls(
      std::string(content.substr(0, std::min(content.find('\n'), kMaxIdBytes))));
}

}  // namespace fo::lock
