// Which processes hold memory of a device, found from outside, in /proc: those who keep an exported
// descriptor or a mapping of memory that no layout owns any more, above all. Asks no driver, and no
// server but for the pid of the process that listens.
//
// Of a simulated device everything is to be seen. Its memory is files, DIR/device-N/mem-<inode>,
// one for each allocation, where DIR is $GMS_SIM_DIR or /dev/shm/gms-sim-<euid>; a descriptor or a
// mapping of such a file holds the allocation, and a handle of the driver library is a descriptor.
// A file is in use while an open file description has a flock on it, which is to be tried only
// under a record lock on DIR/device-N/book.
//
// Of a real device no more is to be seen than who has its device files open or mapped, not how much
// memory that means.
//
// What is not to be seen at all: descriptors in flight, in a socket that nobody has read; what a
// process still holds while it ends; and processes of other pid namespaces or users, which are
// counted where that can be done.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/strong.h"

namespace fo::gms {

/// Something that a process is to be named by.
struct ProcessName {
  pid_t pid = 0;
  /// What it calls itself; any bytes.
  std::string command;
  bool is_server = false;
};

/// Those who own memory on purpose.
struct Servers {
  /// Of each server the process that listens, and its children that run the same program.
  std::set<pid_t> processes;
  /// Sockets whose servers are there, but not in this pid namespace, or could not be asked.
  std::size_t unseen = 0;
};

/// How memory is held: distinct allocations, and by what.
struct Held {
  std::size_t allocations = 0;
  base::ByteCount bytes = 0;
  std::size_t fds = 0;
  /// Distinct allocations that are mapped.
  std::size_t mappings = 0;
};

struct MemoryHolder {
  ProcessName process;
  /// Of allocations that a server holds too.
  Held layout;
  /// Of all others: leaked, or the process's own.
  Held no_layout;
};

struct MemoryHolders {
  int device = 0;
  /// Where the simulated device lies.
  std::string folder;
  /// What layouts own is known from these.
  Servers servers;
  /// Most memory of no layout first.
  std::vector<MemoryHolder> holders;
  /// By those who are to be seen.
  Held layout;
  Held no_layout;
  /// By nobody who is to be seen here.
  Held unseen;
  /// Processes that we may not look into.
  std::size_t unreadable = 0;
};

struct DeviceUser {
  ProcessName process;
  /// Descriptors of the device's file, and of the file that exported memory goes by.
  std::size_t device_fds = 0;
  std::size_t control_fds = 0;
  std::size_t mappings = 0;
};

struct DeviceUsers {
  int device = 0;
  /// /dev/nvidia<minor>; empty where it is not known which of them it is: then all are.
  std::string device_file;
  std::vector<DeviceUser> users;
  std::size_t unreadable = 0;
};

/// The servers that listen on `sockets`, those left out where nobody does. Throws Error(kUsage) for
/// a path that no socket can have.
Servers find_servers(const std::vector<std::string>& sockets, const base::Deadline& deadline);

/// The uuid in the name of the socket that this path leads to; empty where there is none.
std::string uuid_of_socket(const std::string& path);

/// Of simulated device `device`. Throws Error: kUnavailable when there is none, kNotPermitted, and
/// kTryAgain when its book stays locked until `deadline`.
MemoryHolders find_memory_holders(int device, const Servers& servers,
                                  const base::Deadline& deadline);

/// Of real device `device`, which has this uuid ("GPU-…"; any other text: it is not known). Throws
/// Error(kUnavailable) when this machine has no NVIDIA driver. `proc` is for tests.
DeviceUsers find_device_users(int device, const std::string& uuid, const Servers& servers,
                              const std::string& proc = "/proc");

/// One object on one line.
std::string to_json(const MemoryHolders& holders);
std::string to_json(const DeviceUsers& users);
/// Lines for people.
std::string to_text(const MemoryHolders& holders);
std::string to_text(const DeviceUsers& users);

}  // namespace fo::gms
