// What a GMS tells about itself, read without standing in anybody's way, and written down for
// people and for programs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/exit_status.h"
#include "gms/client/discover.h"
#include "gms/protocol/protocol.h"
#include "gms/protocol/types.h"

namespace fo::gms {

/// What a tensor's metadata says. Of a value that is not understood nothing but the name and the
/// place is known.
struct TensorRecord {
  std::string name;
  std::string allocation_id;
  /// Of its allocation, counted 0, 1, 2 … by layout slot.
  std::optional<std::size_t> rank;
  base::ByteCount offset_bytes = 0;
  std::optional<std::string> dtype;
  std::optional<std::vector<std::uint64_t>> shape;
};

struct Listing {
  std::string memory_layout_hash;
  std::vector<Allocation> allocations;
  std::vector<TensorRecord> tensors;
};

struct Stat {
  std::string socket;
  GetRuntimeStateResponse state;
  std::optional<std::vector<Event>> events;
  std::optional<Listing> listing;
  /// Why there is no listing although one was asked for; empty otherwise.
  std::string not_listed;
};

struct StatRequest {
  /// As RpcClient::connect takes it.
  std::optional<uid_t> server_uid;
  bool events = false;
  /// Allocations and tensors too, if a reader's lock is free at once. It is given back as soon as a
  /// writer waits, whatever has been read by then.
  bool list = false;
};

/// Asks the server at `socket`. Throws what RpcClient throws.
Stat read_stat(const std::string& socket, const StatRequest& request,
               const base::Deadline& deadline);

/// One object on one line; the keys are the protocol's field names.
std::string to_json(const Stat& stat);
/// Lines for people.
std::string to_text(const Stat& stat);

/// One of many servers: its state, or why there is none.
struct StatRow {
  FoundSocket socket;
  std::optional<Stat> stat;
  std::string error;
  base::ExitStatus status = base::ExitStatus::kOk;
};

/// Asks one of them.
StatRow read_row(FoundSocket socket, const StatRequest& request, const base::Deadline& deadline);

/// The state of every socket in `dir`, each with its share of the time. Errors of find_sockets;
/// kUnavailable when it finds none.
std::vector<StatRow> read_all_stats(const std::string& dir, const StatRequest& request,
                                    const base::Deadline& deadline);

/// How much of a layout's hash people are shown.
inline constexpr std::size_t kShortHash = 12;

/// For a table: device, tag, state (in its place `absence` where there is none), writer, waiting
/// writers, readers, allocations, what they take of the device, layout hash, socket.
std::vector<std::string> cells_of(const StatRow& row, const std::string& absence);

std::string to_json(const StatRow& row);
/// A table with a line for each.
std::string to_text(const std::vector<StatRow>& rows);

}  // namespace fo::gms
