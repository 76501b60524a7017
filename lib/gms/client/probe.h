// Probes of GMS servers with the answer yes or no, for startup probes and entrypoints.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/strong.h"
#include "base/units.h"
#include "gms/client/remap_check.h"
#include "os/probe.h"

namespace fo::gms {

struct SocketsProbe {
  std::string socket_dir;
  /// As RpcClient::connect takes it.
  std::optional<uid_t> server_uid;
  /// Empty: those with a link for one of the tags in `socket_dir`, at least one.
  std::vector<base::DeviceOrdinal> devices;
  std::vector<std::string> tags;
  /// Each must have a published layout, too.
  bool committed = false;
  /// Time for which the query is repeated. A server that was queried in time has its full second to
  /// answer.
  base::Duration wait{};
};

struct SocketsAnswer : os::ProbeAnswer {
  /// The number of servers that were queried.
  std::size_t sockets = 0;
};

/// Whether every expected socket, each device with each tag, answers a runtime-state request within
/// a second. The reason of a no is the first failure. A missing server, no answer and an invalid
/// answer mean no; any other failure, such as a socket path that is too long or missing
/// permissions, throws Error.
SocketsAnswer probe_sockets(const SocketsProbe& probe);

std::string to_json(const SocketsAnswer& answer);

/// `timeout` is for the server's answers and the reader's lock.
struct RemapProbe : RemapCheckRequest, os::ProbeTimes {};

struct RemapAnswer : os::ProbeAnswer {
  /// The hash of the published layout; empty if unknown.
  LayoutHash memory_layout_hash;
};

/// Whether a sleeping engine could wake now, as check_remap() finds out. Throws the errors of
/// check_remap() that are not an answer.
RemapAnswer probe_remap(const RemapProbe& probe);

std::string to_json(const RemapAnswer& answer);

}  // namespace fo::gms
