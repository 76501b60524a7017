// Which processes hold memory of a device, determined from /proc: above all processes that keep an
// exported descriptor or a mapping of memory that no layout owns. It does not call a driver, and
// queries servers only for the pid of the listening process.
//
// Everything of a simulated device is visible. Its memory is files, one for each allocation, which
// a program beside the simulated driver lists (lib/simcuda/sim_memory.cc). A descriptor or a
// mapping of such a file holds the allocation, and a handle of the driver library is a descriptor.
//
// Of a real device, only the processes that have its device files open or mapped are visible, not
// how much memory they hold.
//
// Invisible are descriptors in flight in a socket, memory that a process still holds while it ends,
// and processes of other pid namespaces or users; they are counted where possible.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/strong.h"

namespace fo::gms {

/// The name of a process for messages.
struct ProcessName {
  pid_t pid = 0;
  /// Its command name; any bytes.
  std::string command;
  bool is_server = false;
};

/// The processes that own memory on purpose.
struct Servers {
  /// For each server, the listening process and its children that run the same program.
  std::set<pid_t> processes;
  /// Sockets with a server that is not in this pid namespace or could not be queried.
  std::size_t unseen = 0;
};

/// Counts of the ways in which memory is held: the number of allocations, descriptors and mappings.
struct Held {
  std::size_t allocations = 0;
  base::ByteCount bytes = 0;
  std::size_t fds = 0;
  /// The number of allocations that are mapped.
  std::size_t mappings = 0;
};

struct MemoryHolder {
  ProcessName process;
  /// Allocations that a server holds, too.
  Held layout;
  /// All others: leaked, or the process's own.
  Held no_layout;
};

struct MemoryHolders {
  int device = 0;
  /// The folder of the simulated device.
  std::string folder;
  /// They determine what layouts own.
  Servers servers;
  /// Ordered by memory of no layout, largest first.
  std::vector<MemoryHolder> holders;
  /// Held by visible processes.
  Held layout;
  Held no_layout;
  /// Held by processes that are not visible here.
  Held unseen;
  /// Processes that could not be inspected for lack of permission.
  std::size_t unreadable = 0;
};

struct DeviceUser {
  ProcessName process;
  /// Descriptors of the device's file, and of the file that represents exported memory.
  std::size_t device_fds = 0;
  std::size_t control_fds = 0;
  std::size_t mappings = 0;
};

struct DeviceUsers {
  int device = 0;
  /// /dev/nvidia<minor>; empty if unknown: then all device files count.
  std::string device_file;
  std::vector<DeviceUser> users;
  std::size_t unreadable = 0;
};

/// The servers that listen on `sockets`; sockets without a server are left out. Throws
/// Error(kUsage) for an invalid socket path.
Servers find_servers(const std::vector<std::string>& sockets, const base::Deadline& deadline);

/// The uuid in the name of the socket that this path links to; empty if there is none.
std::string uuid_of_socket(const std::string& path);

/// For device `device` of the simulated driver that `driver` selects (cuda/driver.h). Throws Error:
/// kUnavailable if it does not exist, or no fo-sim-memory beside the driver; kNotPermitted; and
/// kTryAgain if the device's files stay locked until `deadline`.
MemoryHolders find_memory_holders(const std::string& driver, int device, const Servers& servers,
                                  const base::Deadline& deadline);

/// For real device `device` with this uuid ("GPU-…"; any other text means unknown). Throws
/// Error(kUnavailable) if this machine has no NVIDIA driver. `proc` is for tests.
DeviceUsers find_device_users(int device, const std::string& uuid, const Servers& servers,
                              const std::string& proc = "/proc");

/// One object on one line.
std::string to_json(const MemoryHolders& holders);
std::string to_json(const DeviceUsers& users);
/// Text of several lines.
std::string to_text(const MemoryHolders& holders);
std::string to_text(const DeviceUsers& users);

}  // namespace fo::gms
