#include "gms/server/holders.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "cuda/driver.h"
#include "gms/client/discover.h"
#include "json/object.h"
#include "os/process/proc.h"
#include "os/process/process.h"
#include "os/process/sibling.h"
#include "os/socket/unix_socket.h"
#include "text/table.h"

namespace fo::gms {
namespace {

namespace fs = std::filesystem;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using base::UniqueFd;
using nlohmann::json;

// A line of /proc/<pid>/maps.
struct MapsLine {
  /// "major:minor", hexadecimal.
  std::string_view device;
  ino_t inode = 0;
  std::string_view path;
};

// "7f.. rw-s 00000000 00:1a 4711    /path with spaces": five fields, then the path.
MapsLine parse_maps_line(std::string_view line) {
  constexpr std::string_view kDeleted = " (deleted)";
  std::array<std::string_view, 5> fields;
  for (std::string_view& field : fields) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    field = line.substr(0, line.find(' '));
    line.remove_prefix(field.size());
  }
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  if (line.ends_with(kDeleted)) line.remove_suffix(kDeleted.size());
  return {fields[3], base::parse_uint(fields[4]).value_or(0), line};
}

// The files of one process in /proc. The process may end meanwhile; then they look empty.
class ProcessFiles {
 public:
  ProcessFiles(const std::string& proc, pid_t pid) : folder_(proc + "/" + std::to_string(pid)) {}

  /// False without permission.
  bool each_mapping(const std::function<void(const MapsLine&)>& visit) const {
    const UniqueFd fd(::open((folder_ + "/maps").c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return !is_refusal(errno);
    std::string text;
    char buffer[16384];
    for (;;) {
      const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return !is_refusal(errno);
      if (got == 0) return true;
      text.append(buffer, static_cast<std::size_t>(got));
      std::size_t at = 0;
      for (std::size_t end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
        visit(parse_maps_line(std::string_view(text).substr(at, end - at)));
      }
      text.erase(0, at);
    }
  }

  /// Kernel threads hold no device memory, and cannot be inspected.
  [[nodiscard]] bool has_command_line() const { return !content("/cmdline").empty(); }
  [[nodiscard]] std::string command() const {
    std::string name = content("/comm");
    while (name.ends_with('\n')) name.pop_back();
    return name;
  }

 private:
  static bool is_refusal(int err) { return err == EACCES || err == EPERM; }
  [[nodiscard]] std::string content(const char* file) const {
    const UniqueFd fd(::open((folder_ + file).c_str(), O_RDONLY | O_CLOEXEC));
    char buffer[256];
    const ssize_t got = fd ? ::read(fd.get(), buffer, sizeof buffer) : 0;
    return got > 0 ? std::string(buffer, static_cast<std::size_t>(got)) : "";
  }

  std::string folder_;
};

// Runs the program beside the simulated driver, which lists all files of a device, or those in use.
// Its answer is "FOLDER", then "DEVICE INODE SIZE NAME" for each file; each ends with a NUL.
std::string list_memory(const std::string& driver, const char* which, int ordinal,
                        const Deadline& deadline) {
  constexpr const char* kHelper = "fo-sim-memory";
  // Enough for a million files.
  constexpr std::size_t kMaxAnswer = base::kMiB * 64;
  const std::string helper =
      fs::path(cuda::Driver::file_of(driver)).replace_filename(kHelper).native();
  os::require_helper(helper);
  const auto answer =
      os::run_captured({helper, which, std::to_string(ordinal)}, deadline, -1, kMaxAnswer);
  const std::string what = "inspect simulated device " + std::to_string(ordinal) + ": ";
  if (!answer) throw Error(ExitStatus::kTryAgain, what + "timed out");
  if (answer->status != base::to_int(ExitStatus::kOk)) throw os::helper_error(*answer, kHelper);
  if (answer->out.size() == kMaxAnswer) throw Error(ExitStatus::kSoftware, what + "too many files");
  return answer->out;
}

// The files of a simulated device.
class DeviceFolder {
 public:
  struct File {
    std::string path;
    dev_t device = 0;
    ino_t inode = 0;
    base::ByteCount size = 0;
  };

  explicit DeviceFolder(const std::string& listed) {
    std::istringstream in(listed);
    std::getline(in, path_, '\0');
    for (std::string line; std::getline(in, line, '\0');) {
      std::istringstream fields(line);
      File file;
      std::string name;
      if (!std::getline(fields >> file.device >> file.inode >> file.size >> std::ws, name)) {
        throw Error(ExitStatus::kSoftware, "fo-sim-memory: malformed line " + base::quoted(line));
      }
      file.path = path_ + "/" + name;
      files_.emplace(file.inode, std::move(file));
    }
  }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::map<ino_t, File>& files() const { return files_; }

  /// The file of the descriptor behind this /proc path.
  [[nodiscard]] const File* of_fd(const std::string& link) const {
    // Does not query a file server: one that is down would block for ever.
    struct statx info {};
    if (::statx(AT_FDCWD, link.c_str(), AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_INO, &info) !=
        0) {
      return nullptr;
    }
    const auto found = files_.find(info.stx_ino);
    const bool ours = found != files_.end() &&
                      found->second.device == makedev(info.stx_dev_major, info.stx_dev_minor);
    return ours ? &found->second : nullptr;
  }

  /// By device and inode; by name if the file system shows the mapping with another device.
  [[nodiscard]] const File* of_mapping(const MapsLine& line) const {
    const auto found = line.inode == 0 ? files_.end() : files_.find(line.inode);
    if (found == files_.end()) return nullptr;
    const File& file = found->second;
    const bool ours =
        line.path == file.path ||
        line.device == fmt::format("{:02x}:{:02x}", major(file.device), minor(file.device));
    return ours ? &file : nullptr;
  }

 private:
  std::string path_;
  /// By inode.
  std::map<ino_t, File> files_;
};

// The memory of a simulated device that one process holds, by inode.
struct Hold {
  std::size_t fds = 0;
  bool is_mapped = false;
};

void add(Held& held, base::ByteCount size, const Hold& hold) {
  ++held.allocations;
  held.bytes += size;
  held.fds += hold.fds;
  if (hold.is_mapped) ++held.mappings;
}

// The device file of the real device with this uuid, /dev/nvidia<Device Minor>; empty if unknown.
std::string device_file_of(const std::string& uuid, const std::string& proc) {
  std::error_code error;
  const std::string gpus = proc + "/driver/nvidia/gpus";
  fs::directory_iterator folders(gpus, error);
  if (error) {
    throw Error(ExitStatus::kUnavailable, "look for NVIDIA devices in " + base::quoted(gpus),
                error);
  }
  for (; !error && folders != fs::directory_iterator(); folders.increment(error)) {
    std::ifstream information(folders->path() / "information");
    std::map<std::string, std::string, std::less<>> values;
    for (std::string line; std::getline(information, line);) {
      const std::size_t colon = line.find(':');
      const std::size_t value = line.find_first_not_of(" \t", colon + 1);
      if (colon != std::string::npos && value != std::string::npos) {
        values.emplace(line.substr(0, colon), line.substr(value));
      }
    }
    if (values["GPU UUID"] == uuid && base::parse_uint(values["Device Minor"])) {
      return "/dev/nvidia" + values["Device Minor"];
    }
  }
  return {};
}

bool is_gpu_file(std::string_view path) {
  constexpr std::string_view kStart = "/dev/nvidia";
  return path.starts_with(kStart) && base::parse_uint(path.substr(kStart.size()));
}

json to_object(const Held& held) {
  return {{"allocations", held.allocations},
          {"bytes", held.bytes},
          {"fds", held.fds},
          {"mappings", held.mappings}};
}

json to_object(const ProcessName& process) {
  return {{"pid", process.pid}, {"process", process.command}, {"is_server", process.is_server}};
}

std::string amount(const Held& held) {
  return base::format_size(held.bytes) + " in " + base::counted(held.allocations, "allocation");
}

std::string unreadable_text(std::size_t count) {
  if (count == 0) return {};
  return "not inspected, permission denied: " + base::counted(count, "process") + "\n";
}

}  // namespace

Servers find_servers(const std::vector<std::string>& sockets, const Deadline& deadline) {
  Servers servers;
  for (const std::string& socket : sockets) {
    try {
      const UniqueFd connected = os::connect_unix(socket, deadline);
      // 0: a process outside this pid namespace.
      const pid_t pid = os::peer_credentials(connected.get()).pid;
      if (pid != 0) servers.processes.insert(pid);
      if (pid == 0) ++servers.unseen;
    } catch (const Error& error) {
      if (error.status() == ExitStatus::kUsage) throw;
      if (error.status() != ExitStatus::kUnavailable) ++servers.unseen;
    }
  }
  const auto program_of = [](pid_t pid) {
    std::error_code error;
    return fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", error);
  };
  const std::set<pid_t> listening = servers.processes;
  os::each_process([&](pid_t pid) {
    const std::optional<pid_t> parent = os::process_parent(pid);
    if (!parent || !listening.contains(*parent)) return;
    const fs::path program = program_of(pid);
    if (!program.empty() && program == program_of(*parent)) servers.processes.insert(pid);
  });
  return servers;
}

std::string uuid_of_socket(const std::string& path) {
  std::error_code absent;
  const auto named = parse_socket_name(fs::canonical(path, absent).filename().native());
  return named ? named->uuid : "";
}

MemoryHolders find_memory_holders(const std::string& driver, int ordinal, const Servers& servers,
                                  const Deadline& deadline) {
  const DeviceFolder device(list_memory(driver, "all", ordinal, deadline));
  MemoryHolders found;
  found.device = ordinal;
  found.servers = servers;
  found.folder = device.path();
  std::map<pid_t, std::map<ino_t, Hold>> by_process;
  std::set<ino_t> owned;
  std::map<ino_t, Hold> seen;
  os::each_process([&](pid_t pid) {
    const ProcessFiles files("/proc", pid);
    std::map<ino_t, Hold> holds;
    const bool saw_fds = os::each_fd(pid, [&](int, const std::string& link) {
      if (const auto* file = device.of_fd(link)) ++holds[file->inode].fds;
    });
    const bool saw_mappings = files.each_mapping([&](const MapsLine& line) {
      if (const auto* file = device.of_mapping(line)) holds[file->inode].is_mapped = true;
    });
    if ((!saw_fds || !saw_mappings) && files.has_command_line()) ++found.unreadable;
    if (holds.empty()) return;
    for (const auto& [inode, hold] : holds) {
      seen[inode].fds += hold.fds;
      seen[inode].is_mapped |= hold.is_mapped;
      if (servers.processes.contains(pid)) owned.insert(inode);
    }
    found.holders.push_back({{pid, files.command(), servers.processes.contains(pid)}, {}, {}});
    by_process.emplace(pid, std::move(holds));
  });
  for (MemoryHolder& holder : found.holders) {
    for (const auto& [inode, hold] : by_process[holder.process.pid]) {
      add(owned.contains(inode) ? holder.layout : holder.no_layout, device.files().at(inode).size,
          hold);
    }
  }
  std::vector<const DeviceFolder::File*> unseen;
  for (const auto& [inode, file] : device.files()) {
    const auto hold = seen.find(inode);
    if (hold == seen.end()) {
      unseen.push_back(&file);
    } else {
      add(owned.contains(inode) ? found.layout : found.no_layout, file.size, hold->second);
    }
  }
  if (!unseen.empty()) {
    const DeviceFolder held(list_memory(driver, "held", ordinal, deadline));
    for (const auto* file : unseen) {
      if (held.files().contains(file->inode)) add(found.unseen, file->size, {});
    }
  }
  std::sort(found.holders.begin(), found.holders.end(),
            [](const MemoryHolder& one, const MemoryHolder& other) {
              return std::make_tuple(one.no_layout.bytes, one.layout.bytes, other.process.pid) >
                     std::make_tuple(other.no_layout.bytes, other.layout.bytes, one.process.pid);
            });
  return found;
}

DeviceUsers find_device_users(int device, const std::string& uuid, const Servers& servers,
                              const std::string& proc) {
  DeviceUsers found;
  found.device = device;
  found.device_file = device_file_of(uuid, proc);
  const auto look_into = [&](pid_t pid) {
    const ProcessFiles files(proc, pid);
    DeviceUser user;
    bool uses_another = false;
    const auto is_device = [&](std::string_view path) {
      if (!is_gpu_file(path)) return false;
      const bool ours = found.device_file.empty() || path == found.device_file;
      uses_another |= !ours;
      return ours;
    };
    const auto count_fd = [&](int, const std::string& link) {
      std::error_code gone;
      const std::string path = fs::read_symlink(link, gone).native();
      if (is_device(path)) ++user.device_fds;
      if (path == "/dev/nvidiactl") ++user.control_fds;
    };
    const bool saw_fds = os::each_fd(pid, count_fd, proc);
    const bool saw_mappings = files.each_mapping([&](const MapsLine& line) {
      if (is_device(line.path)) ++user.mappings;
    });
    if ((!saw_fds || !saw_mappings) && files.has_command_line()) ++found.unreadable;
    const bool uses_device = user.device_fds > 0 || user.mappings > 0;
    // A process without a device's file may hold exported memory of any device.
    if (!uses_device && (uses_another || user.control_fds == 0)) return;
    user.process = {pid, files.command(), servers.processes.contains(pid)};
    found.users.push_back(std::move(user));
  };
  os::each_process(look_into, proc);
  std::sort(found.users.begin(), found.users.end(),
            [](const DeviceUser& one, const DeviceUser& other) {
              return one.process.pid < other.process.pid;
            });
  return found;
}

std::string to_json(const MemoryHolders& holders) {
  json out{
      {"device", holders.device},
      {"simulated", true},
      {"folder", holders.folder},
      {"server_pids", holders.servers.processes},
      {"unseen_servers", holders.servers.unseen},
      {"layout", to_object(holders.layout)},
      {"no_layout", to_object(holders.no_layout)},
      {"unseen", {{"allocations", holders.unseen.allocations}, {"bytes", holders.unseen.bytes}}},
      {"unreadable_processes", holders.unreadable}};
  out["holders"] = json::array();
  for (const MemoryHolder& holder : holders.holders) {
    json one = to_object(holder.process);
    one["layout"] = to_object(holder.layout);
    one["no_layout"] = to_object(holder.no_layout);
    out["holders"].push_back(std::move(one));
  }
  return fo::json::dump(out);
}

std::string to_text(const MemoryHolders& holders) {
  std::string out =
      fmt::format("device {}, simulated in {}\nmemory of a layout: {}\nmemory of no layout: {}\n",
                  holders.device, text::shown(holders.folder), amount(holders.layout),
                  amount(holders.no_layout));
  if (holders.unseen.allocations > 0) {
    out += "memory held by processes that are not visible: " + amount(holders.unseen) + "\n";
  }
  if (holders.servers.processes.empty()) {
    out += "no server is visible: all memory is counted as memory of no layout\n";
  } else if (holders.servers.unseen > 0) {
    out += fmt::format("{} server{} not visible: their memory counts as memory of no layout\n",
                       holders.servers.unseen, holders.servers.unseen == 1 ? " is" : "s are");
  }
  out += unreadable_text(holders.unreadable);
  if (holders.holders.empty()) return out;
  text::TextTable table("rlrrrrrr");
  table.add({"pid", "process", "no layout", "fds", "mappings", "layout", "fds", "mappings"});
  for (const MemoryHolder& holder : holders.holders) {
    const ProcessName& process = holder.process;
    std::vector<std::string> cells{
        std::to_string(process.pid),
        text::shown(process.command) + (process.is_server ? " (server)" : "")};
    for (const Held* held : {&holder.no_layout, &holder.layout}) {
      cells.push_back(base::format_size(held->bytes));
      cells.push_back(std::to_string(held->fds));
      cells.push_back(std::to_string(held->mappings));
    }
    table.add(std::move(cells));
  }
  return out + table.text();
}

std::string to_json(const DeviceUsers& users) {
  json out{{"device", users.device},
           {"simulated", false},
           {"device_file", users.device_file.empty() ? json() : json(users.device_file)},
           {"unreadable_processes", users.unreadable}};
  out["holders"] = json::array();
  for (const DeviceUser& user : users.users) {
    json one = to_object(user.process);
    one["device_fds"] = user.device_fds;
    one["control_fds"] = user.control_fds;
    one["mappings"] = user.mappings;
    out["holders"].push_back(std::move(one));
  }
  return fo::json::dump(out);
}

std::string to_text(const DeviceUsers& users) {
  std::string out =
      fmt::format("device {}, {}\n", users.device,
                  users.device_file.empty() ? "its device file is unknown: all processes are shown"
                                            : text::shown(users.device_file));
  out += unreadable_text(users.unreadable);
  if (users.users.empty()) return out;
  text::TextTable table("rlrrr");
  table.add({"pid", "process", "device fds", "control fds", "mappings"});
  for (const DeviceUser& user : users.users) {
    table.add({std::to_string(user.process.pid),
               text::shown(user.process.command) + (user.process.is_server ? " (server)" : ""),
               std::to_string(user.device_fds), std::to_string(user.control_fds),
               std::to_string(user.mappings)});
  }
  return out + table.text();
}

}  // namespace fo::gms
