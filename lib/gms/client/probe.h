// Probes of GMS servers: a question with the answer yes or no, for startup probes and entrypoints.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace fo::gms {

struct SocketsProbe {
  std::string socket_dir;
  /// As RpcClient::connect takes it.
  std::optional<uid_t> server_uid;
  /// Empty: those that have a link with one of the tags in `socket_dir`, at least one.
  std::vector<int> devices;
  std::vector<std::string> tags;
  /// Each must have a layout published, too.
  bool committed = false;
  /// How long to go on asking. A server that was asked in time has its second to answer.
  base::Duration wait{};
};

struct SocketsAnswer {
  bool yes = false;
  /// How many were asked.
  std::size_t sockets = 0;
  /// For no: the first that failed and why, one line.
  std::string reason;
};

/// Whether every expected socket, each device with each tag, answers a runtime-state request within
/// a second. What is no answer (nothing there, nobody answering, garbage) is a no; anything else
/// that fails, such as a socket path that is too long or permissions, throws Error.
SocketsAnswer probe_sockets(const SocketsProbe& probe);

std::string to_json(const SocketsAnswer& answer);

struct RemapProbe {
  std::string socket;
  /// As RpcClient::connect takes it.
  std::optional<uid_t> server_uid;
  /// Another layout is a no; empty: any layout will do.
  std::string expect_hash;
  /// For the server's answers and for a reader's lock.
  base::Duration timeout{};
  /// How long to go on asking. A check that was begun in time has its own time.
  base::Duration wait{};
};

struct RemapAnswer {
  bool yes = false;
  /// Of the layout that is published; empty where it was not told.
  std::string memory_layout_hash;
  /// For no: one line.
  std::string reason;
};

/// Whether an engine that sleeps could wake now: check_remap() without the mapping. What that
/// throws and is no answer, throws here, too.
RemapAnswer probe_remap(const RemapProbe& probe);

std::string to_json(const RemapAnswer& answer);

}  // namespace fo::gms
