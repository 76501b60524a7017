#include "lock/lock_status.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "json/object.h"
#include "lock/lease/etcd_client.h"
#include "lock/lease/kube_client.h"
#include "lock/lockd/lockd_client.h"
#include "lock/lockd/lockd_lock.h"
#include "os/file/file.h"
#include "os/file/file_lock.h"
#include "os/process/proc.h"

namespace fo::lock {
namespace {

using base::UniqueFd;
using fo::json::or_null;
using nlohmann::json;

// A separate description of the lock file for reading; invalid if the file does not exist in its
// folder.
UniqueFd open_to_look(const std::string& path, const std::string& name) {
  const std::string what = "open " + name + " " + base::quoted(path);
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  UniqueFd fd(::open(path.c_str(), kFlags | O_NOFOLLOW));
  if (fd) return fd;
  const int err = errno;
  if (err == ELOOP && std::filesystem::is_symlink(path)) {
    throw base::Error(base::ExitStatus::kBadData,
                      what + ": a symbolic link, which is not followed");
  }
  // A mistyped path must not look like a free lock.
  if (const auto folder = os::find_missing_folder(path)) {
    throw base::Error(base::ExitStatus::kNoInput,
                      what + ": missing folder " + base::quoted(*folder));
  }
  if (err != ENOENT) base::throw_errno(err, what);
  return fd;
}

// Processes may end meanwhile, and most belong to other users; unreadable entries are skipped.
std::vector<OpenBy> find_open(const struct stat& file) {
  std::vector<OpenBy> found;
  const auto look_into = [&](pid_t pid) {
    if (pid == ::getpid()) return;
    os::each_fd(pid, [&](int fd, const std::string& path) {
      // Does not query a file server: one that is down would block for ever.
      struct statx info {};
      constexpr unsigned kNoSync = AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT;
      if (::statx(AT_FDCWD, path.c_str(), kNoSync, STATX_INO, &info) != 0 ||
          info.stx_ino != file.st_ino ||
          makedev(info.stx_dev_major, info.stx_dev_minor) != file.st_dev) {
        return;
      }
      found.push_back({pid, fd, command_of(pid), os::holds_file_lock(pid, fd)});
    });
  };
  try {
    os::each_process(look_into);
  } catch (const base::Error&) {
    // Without /proc no process is found.
  }
  return found;
}

std::string process_name(const OpenBy& by) {
  return std::to_string(by.pid) + (by.command.empty() ? "" : " (" + by.command + ")");
}

}  // namespace

std::string read_start(int fd, const std::string& what) {
  std::array<char, kGrantFileSize + 1> bytes{};
  const ssize_t got = ::pread(fd, bytes.data(), bytes.size(), 0);
  if (got < 0) base::throw_errno(errno, what);
  return {bytes.data(), static_cast<std::size_t>(got)};
}

// Read again if a new holder has written only a part of it.
GrantContent read_grant(const std::string& path) {
  const UniqueFd fd = open_to_look(path + ".grant", "grant record");
  GrantContent content;
  for (int tries = 0; fd && tries < 3; ++tries) {
    content = decode_grant(read_start(fd.get(), "read " + base::quoted(path + ".grant")));
    if (content.kind != GrantContent::Kind::kDamaged) break;
  }
  return content;
}

std::string command_of(pid_t pid) {
  try {
    // The same rules as for an id: one line without control characters.
    return id_of_lock_file(os::read_file("/proc/" + std::to_string(pid) + "/comm", 4096));
  } catch (const base::Error&) {
    return {};
  }
}

namespace {

// For a lock that is not a file.
LockStatus query_service(const LockUri& lock, const base::Deadline& deadline) {
  switch (lock.kind) {
    case LockUri::Kind::kFlock:
      break;
    case LockUri::Kind::kLockd:
      return query_lockd(lock.path, deadline);
    case LockUri::Kind::kTcp:
      return query_lockd_over_tcp(lock, deadline);
    case LockUri::Kind::kEtcd:
      return query_etcd(lock, deadline);
    case LockUri::Kind::kKube:
      return query_kube(lock, deadline);
  }
  throw base::Error(base::ExitStatus::kSoftware, "query a lock: unknown kind");
}

}  // namespace

std::optional<std::string> find_owner(const LockUri& lock, base::Duration limit) {
  if (lock.kind != LockUri::Kind::kFlock) {
    const LockStatus status = query_service(lock, base::Deadline::after(limit));
    return status.held ? std::optional(status.holder) : std::nullopt;
  }
  const std::string& path = lock.path;
  const UniqueFd fd = open_to_look(path, "lock file");
  if (!fd) return std::nullopt;
  if (!os::is_file_locked(fd.get(), os::visible_file_locks(os::file_key(fd.get())))) {
    return std::nullopt;
  }
  return id_of_lock_file(read_start(fd.get(), "read " + base::quoted(path)));
}

std::string owner_json(const std::optional<std::string>& id) {
  return fo::json::dump({{"holder", or_null(id)}});
}

LockStatus read_lock_status(const LockUri& lock, base::Duration limit) {
  if (lock.kind != LockUri::Kind::kFlock) return query_service(lock, base::Deadline::after(limit));
  const std::string& path = lock.path;
  LockStatus status;
  status.path = path;
  const UniqueFd fd = open_to_look(path, "lock file");
  const GrantContent content = read_grant(path);
  const bool recorded = content.kind == GrantContent::Kind::kRecord;
  if (recorded) status.last_generation = content.record.generation;
  if (!fd) return status;
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) base::throw_errno(errno, "stat " + base::quoted(path));
  const os::FileLocks locks = os::visible_file_locks(os::file_key(fd.get()));
  status.held = os::is_file_locked(fd.get(), locks);
  for (const pid_t pid : locks.waiters) status.waiters.push_back({pid, {}});
  status.open_by = find_open(info);
  if (!status.held) return status;
  const std::string text = read_start(fd.get(), "read " + base::quoted(path));
  status.holder = id_of_lock_file(text);
  // Holders without a record write their name without a newline, which distinguishes their
  // "engine-0" from that of an earlier record.
  if (recorded && text == content.record.holder + "\n" && content.record.inode == info.st_ino) {
    status.record = content.record;
    status.holder_state =
        holder_state(content.record, base::Deadline::after(base::Duration::zero()));
    // It may have ended since its descriptors were read.
    if (status.holder_state == HolderState::kEnded) {
      std::erase_if(status.open_by, [&](const OpenBy& by) { return by.pid == status.record->pid; });
    }
  }
  return status;
}

std::string to_json(const LockStatus& status) {
  const bool recorded = status.record.has_value();
  const GrantRecord record = status.record.value_or(GrantRecord());
  const bool visible = recorded && status.holder_state != HolderState::kNotVisible;
  json object{{"path", status.path},
              {"held", status.held},
              {"holder", or_null(status.held, status.holder)},
              {"generation", or_null(recorded, record.generation)},
              {"pid", or_null(visible, record.pid)},
              {"pid_visible", visible},
              {"running", or_null(visible, status.holder_state == HolderState::kRunning)},
              {"start_time", or_null(visible, record.start_time)},
              {"granted_at", or_null(recorded, record.granted_at)},
              {"host", or_null(recorded, record.host)},
              {"last_generation", or_null(status.last_generation)},
              {"waiters", json::array()},
              {"open_by", json::array()},
              {"window_left", nullptr}};
  for (const Waiter& waiter : status.waiters) {
    object["waiters"].push_back({{"pid", or_null(waiter.pid != 0, waiter.pid)},
                                 {"id", or_null(!waiter.id.empty(), waiter.id)}});
  }
  for (const OpenBy& by : status.open_by) {
    object["open_by"].push_back({{"pid", by.pid},
                                 {"fd", or_null(by.fd >= 0, by.fd)},
                                 {"command", by.command},
                                 {"holds", by.holds}});
  }
  if (status.window_left) {
    object["window_left"] = std::chrono::duration<double>(*status.window_left).count();
  }
  return fo::json::dump(object);
}

std::string to_text(const LockStatus& status) {
  std::string text;
  // Names come from files and other processes, so they must not be able to form a line of this
  // output.
  const auto line = [&](const std::string& key, std::string value) {
    text += key + ": " + base::without_controls(std::move(value)) + "\n";
  };
  line("lock", status.path);
  line("state", status.held ? "held" : "free");
  if (status.held) {
    line("holder", status.holder.empty() ? "(unknown: it records no id)" : status.holder);
    if (!status.record) {
      line("generation", "unknown");
    } else {
      line("generation", std::to_string(status.record->generation));
      const std::string& host = status.record->host;
      const std::string& since = status.record->granted_at;
      if (!since.empty()) line("since", since + (host.empty() ? "" : " on " + host));
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
  if (status.window_left) {
    line("window_left",
         base::format_duration(std::chrono::ceil<std::chrono::milliseconds>(*status.window_left)));
  }
  for (const Waiter& waiter : status.waiters) {
    line("waiter", (waiter.pid == 0 ? "not visible from here" : std::to_string(waiter.pid)) +
                       (waiter.id.empty() ? "" : " " + waiter.id));
  }
  for (const OpenBy& by : status.open_by) {
    line("open_by", process_name(by) + (by.fd < 0 ? "" : " fd " + std::to_string(by.fd)) +
                        (by.holds ? ", holds the lock" : ""));
  }
  return text;
}

std::string describe_holders(const LockStatus& status) {
  std::string text =
      "held by " + (status.holder.empty() ? "another process" : base::quoted(status.holder));
  if (status.record) {
    text += ", generation " + std::to_string(status.record->generation);
    const std::string process = ", process " + std::to_string(status.record->pid);
    if (status.holder_state == HolderState::kRunning) text += process;
    if (status.holder_state == HolderState::kEnded) text += process + " which has ended";
  }
  std::string openers;
  for (const OpenBy& by : status.open_by) {
    if (by.holds) openers += (openers.empty() ? "; held open by " : ", ") + process_name(by);
  }
  return text + (openers.empty() ? "; not visible from here" : openers);
}

}  // namespace fo::lock
