#include "lock/lock_status.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "os/file.h"
#include "os/file_lock.h"

namespace fo::lock {
namespace {

using base::UniqueFd;
using nlohmann::json;

// A reader's own description of the lock file; invalid when there is no such file.
UniqueFd open_to_look(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd && errno != ENOENT && errno != ENOTDIR) {
    base::throw_errno(errno, "open lock file " + base::quoted(path));
  }
  return fd;
}

std::string read_start(int fd, const std::string& path) {
  std::array<char, kGrantFileSize + 1> bytes{};
  const ssize_t got = ::pread(fd, bytes.data(), bytes.size(), 0);
  if (got < 0) base::throw_errno(errno, "read " + base::quoted(path));
  return {bytes.data(), static_cast<std::size_t>(got)};
}

// Read again when it is found half written by a holder that has just been granted the lock.
GrantContent read_grant(const std::string& path) {
  const UniqueFd fd = open_to_look(path + ".grant");
  GrantContent content;
  for (int tries = 0; fd && tries < 3; ++tries) {
    content = decode_grant(read_start(fd.get(), path + ".grant"));
    if (content.kind != GrantContent::Kind::kDamaged) break;
  }
  return content;
}

std::string first_line(const std::string& path) {
  try {
    const std::string text = os::read_file(path, 4096);
    return text.substr(0, text.find('\n'));
  } catch (const base::Error&) {
    return {};
  }
}

// Processes may end while they are looked at, and most belong to others: what can't be read is
// passed over.
std::vector<OpenBy> find_open(const struct stat& file) {
  namespace fs = std::filesystem;
  std::vector<OpenBy> found;
  std::error_code ignored;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", ignored)) {
    const auto pid = base::parse_uint(process.path().filename().native());
    if (!pid || static_cast<pid_t>(*pid) == ::getpid()) continue;
    const std::string folder = process.path().native();
    fs::directory_iterator fds(folder + "/fd", ignored);
    for (; !ignored && fds != fs::directory_iterator(); fds.increment(ignored)) {
      struct stat info {};
      if (::stat(fds->path().c_str(), &info) != 0 || info.st_ino != file.st_ino ||
          info.st_dev != file.st_dev) {
        continue;
      }
      OpenBy open_by;
      open_by.pid = static_cast<pid_t>(*pid);
      const std::string number = fds->path().filename().native();
      open_by.fd = static_cast<int>(base::parse_uint(number).value_or(0));
      open_by.command = first_line(folder + "/comm");
      try {
        const std::string details = os::read_file(folder + "/fdinfo/" + number, base::kMiB);
        open_by.holds = details.find("FLOCK  ADVISORY  WRITE") != std::string::npos;
      } catch (const base::Error&) {
      }
      found.push_back(std::move(open_by));
    }
  }
  return found;
}

}  // namespace

std::optional<std::string> find_owner(const std::string& path) {
  const UniqueFd fd = open_to_look(path);
  if (!fd) return std::nullopt;
  if (!os::is_file_locked(fd.get(), os::visible_file_locks(os::file_key(fd.get())))) {
    return std::nullopt;
  }
  return id_of_lock_file(read_start(fd.get(), path));
}

std::string owner_json(const std::optional<std::string>& id) {
  json object{{"holder", nullptr}};
  if (id) object["holder"] = *id;
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

LockStatus read_lock_status(const std::string& path) {
  LockStatus status;
  status.path = path;
  const GrantContent content = read_grant(path);
  const bool recorded = content.kind == GrantContent::Kind::kRecord;
  if (recorded) status.last_generation = content.record.generation;
  const UniqueFd fd = open_to_look(path);
  if (!fd) return status;
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) base::throw_errno(errno, "look at " + base::quoted(path));
  const os::FileLocks locks = os::visible_file_locks(os::file_key(fd.get()));
  status.held = os::is_file_locked(fd.get(), locks);
  status.waiters = locks.waiters;
  status.open_by = find_open(info);
  if (!status.held) return status;
  const std::string text = read_start(fd.get(), path);
  status.holder = id_of_lock_file(text);
  // Holders that keep no record end the name without a newline: that tells their "engine-0" from
  // the one in the record of somebody before them.
  if (recorded && text == content.record.holder + "\n" && content.record.inode == info.st_ino) {
    status.record = content.record;
    status.holder_state =
        holder_state(content.record, base::Deadline::after(base::Duration::zero()));
  }
  return status;
}

std::string to_json(const LockStatus& status) {
  json object{{"path", status.path},
              {"held", status.held},
              {"holder", nullptr},
              {"generation", nullptr},
              {"pid", nullptr},
              {"pid_visible", false},
              {"running", nullptr},
              {"start_time", nullptr},
              {"granted_at", nullptr},
              {"host", nullptr},
              {"last_generation", nullptr},
              {"waiters", status.waiters},
              {"open_by", json::array()}};
  if (status.held) object["holder"] = status.holder;
  if (status.last_generation) object["last_generation"] = *status.last_generation;
  if (status.record) {
    object["generation"] = status.record->generation;
    object["granted_at"] = status.record->granted_at;
    object["host"] = status.record->host;
    if (status.holder_state != HolderState::kNotVisible) {
      object["pid_visible"] = true;
      object["pid"] = status.record->pid;
      object["running"] = status.holder_state == HolderState::kRunning;
      object["start_time"] = status.record->start_time;
    }
  }
  for (const OpenBy& by : status.open_by) {
    object["open_by"].push_back(
        {{"pid", by.pid}, {"fd", by.fd}, {"command", by.command}, {"holds", by.holds}});
  }
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string to_text(const LockStatus& status) {
  std::string text;
  // Names come from files and other processes: nothing of theirs may look like a line of ours.
  const auto line = [&](const std::string& key, std::string value) {
    std::erase_if(value, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
    text += key + ": " + value + "\n";
  };
  line("lock", status.path);
  line("state", status.held ? "held" : "free");
  if (status.held) {
    line("holder", status.holder.empty() ? "(writes no name)" : status.holder);
    if (!status.record) {
      line("generation", "unknown");
    } else {
      line("generation", std::to_string(status.record->generation));
      line("since", status.record->granted_at + " on " + status.record->host);
      switch (status.holder_state) {
        case HolderState::kNotVisible:
          line("pid", "not visible from here");
          break;
        case HolderState::kRunning:
          line("pid", std::to_string(status.record->pid));
          line("start_time", std::to_string(status.record->start_time));
          break;
        case HolderState::kEnded:
          line("pid", std::to_string(status.record->pid) + " (ended; others inherited the lock)");
          break;
      }
    }
  } else if (status.last_generation) {
    line("last_generation", std::to_string(*status.last_generation));
  }
  for (const pid_t pid : status.waiters) line("waiter", std::to_string(pid));
  for (const OpenBy& by : status.open_by) {
    line("open_by", std::to_string(by.pid) + " (" + by.command + ") fd " + std::to_string(by.fd) +
                        (by.holds ? ", holds the lock" : ""));
  }
  return text;
}

}  // namespace fo::lock
