// Reads the state that a GMS reports about itself, without delaying other clients, and formats it
// as text and as JSON.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/exit_status.h"
#include "gms/client/discover.h"
#include "gms/protocol/protocol.h"
#include "gms/protocol/types.h"

namespace fo::gms {

/// The metadata of a tensor. If the value is of an unknown kind, only the name and the position are
/// known.
struct TensorRecord {
  std::string name;
  AllocationId allocation_id;
  /// Index of its allocation, counted from 0 by layout slot.
  std::optional<std::size_t> rank;
  base::ByteCount offset_bytes = 0;
  std::optional<std::string> dtype;
  std::optional<std::vector<std::uint64_t>> shape;
};

struct Listing {
  LayoutHash memory_layout_hash;
  std::vector<Allocation> allocations;
  std::vector<TensorRecord> tensors;
};

struct Stat {
  std::string socket;
  GetRuntimeStateResponse state;
  std::optional<std::vector<Event>> events;
  std::optional<Listing> listing;
  /// Why a requested listing is missing; else empty.
  std::string not_listed;
};

struct StatRequest {
  /// Argument of RpcClient::connect.
  std::optional<uid_t> server_uid = {};
  bool events = false;
  /// Also list allocations and tensors if a reader's lock is free at once. The lock is released as
  /// soon as a writer waits, even if the listing is incomplete.
  bool list = false;
};

/// Queries the server at `socket`. Throws what RpcClient throws.
Stat read_stat(const std::string& socket, const StatRequest& request,
               const base::Deadline& deadline);

/// One object on one line; the keys are the protocol's field names.
std::string to_json(const Stat& stat);
/// Text of several lines.
std::string to_text(const Stat& stat);

/// One of many servers: its state, or the reason why it is unknown.
struct StatRow {
  FoundSocket socket;
  std::optional<Stat> stat;
  std::string error;
  base::ExitStatus status = base::ExitStatus::kOk;
};

/// Queries one server; an Error becomes the row's `error` and `status`.
StatRow read_row(FoundSocket socket, const StatRequest& request, const base::Deadline& deadline);

/// The state of every socket in `dir`, each with its share of the time. Throws what find_sockets
/// throws; kUnavailable if it finds none.
std::vector<StatRow> read_all_stats(const std::string& dir, const StatRequest& request,
                                    const base::Deadline& deadline);

/// Number of digits of a layout's hash in tables.
inline constexpr std::size_t kShortHash = 12;

/// The cells of a table: device, tag, state (or `absence`), writer, waiting writers, readers,
/// allocations, their size, layout hash, socket.
std::vector<std::string> cells_of(const StatRow& row, const std::string& absence);

std::string to_json(const StatRow& row);
/// A table with a line for each server.
std::string to_text(const std::vector<StatRow>& rows);

}  // namespace fo::gms
