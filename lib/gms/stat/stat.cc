#include "gms/stat/stat.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "gms/client/rpc_client.h"
#include "gms/protocol/tensor_metadata.h"
#include "json/object.h"
#include "text/table.h"

namespace fo::gms {
namespace {

using base::Deadline;
using base::Error;
using fo::json::or_null;
using nlohmann::json;

// Number of keys that are read between two checks for a writer that waits for our lock.
constexpr std::size_t kKeysBetweenLooks = 16;

const char* why_no_reader(const GetRuntimeStateResponse& state) {
  if (state.has_rw_session) return "a writer holds it";
  if (state.waiting_writers > 0) return "a writer waits for it";
  if (!state.committed) return "nothing is published";
  return nullptr;
}

RpcClient connect(const std::string& socket, const StatRequest& request, const Deadline& deadline) {
  return RpcClient::connect(socket, deadline, RpcClient::Retry::kNever, request.server_uid);
}

std::optional<Listing> read_listing(const std::string& socket, const StatRequest& request,
                                    const Deadline& deadline, std::string& reason) {
  RpcClient rpc = connect(socket, request, deadline);
  if (!rpc.request_lock(LockType::kRo, Deadline::after(base::Duration::zero())).grant) {
    reason = "a writer was granted first";
    return std::nullopt;
  }
  Listing listing;
  listing.memory_layout_hash = rpc.layout_hash();
  listing.allocations = rpc.list_allocations();
  std::map<std::string_view, std::size_t> rank_of;
  for (const Allocation& one : listing.allocations) {
    rank_of.emplace(one.allocation_id.value(), rank_of.size());
  }
  for (std::string& key : rpc.list_metadata()) {
    if (listing.tensors.size() % kKeysBetweenLooks == 0 && rpc.lock_state().waiting_writers > 0) {
      reason = "a writer waits for it";
      return std::nullopt;
    }
    const std::optional<MetadataEntry> entry = rpc.get_metadata(key);
    if (!entry) continue;
    TensorRecord& tensor = listing.tensors.emplace_back();
    tensor.name = std::move(key);
    tensor.allocation_id = entry->allocation_id;
    tensor.offset_bytes = entry->offset_bytes;
    const auto rank = rank_of.find(tensor.allocation_id.value());
    if (rank != rank_of.end()) tensor.rank = rank->second;
    if (auto about = parse_tensor_metadata(entry->value)) {
      tensor.dtype = std::move(about->dtype);
      tensor.shape = std::move(about->shape);
    }
  }
  return listing;
}

template <typename Record>
json fields_of(const Record& record) {
  json out = json::object();
  Record::each_field(record, [&](const char* name, const auto& value) {
    if constexpr (requires { value.has_value(); }) {
      out[name] = or_null(value);
    } else if constexpr (requires { value.value(); }) {
      out[name] = value.value();
    } else {
      out[name] = value;
    }
  });
  return out;
}

json to_object(const Stat& stat) {
  json out = fields_of(stat.state);
  out["socket"] = stat.socket;
  if (stat.events) {
    out["events"] = json::array();
    for (const Event& event : *stat.events) out["events"].push_back(fields_of(event));
  }
  if (!stat.not_listed.empty()) out["not_listed"] = stat.not_listed;
  if (!stat.listing) return out;
  out["allocations"] = json::array();
  for (const Allocation& one : stat.listing->allocations) {
    out["allocations"].push_back({{"allocation_id", one.allocation_id.value()},
                                  {"size", one.size},
                                  {"aligned_size", one.aligned_size},
                                  {"tag", one.tag},
                                  {"layout_slot", one.layout_slot}});
  }
  out["tensors"] = json::array();
  for (const TensorRecord& tensor : stat.listing->tensors) {
    out["tensors"].push_back({{"key", tensor.name},
                              {"allocation_id", tensor.allocation_id.value()},
                              {"allocation_rank", or_null(tensor.rank)},
                              {"offset_bytes", tensor.offset_bytes},
                              {"dtype", or_null(tensor.dtype)},
                              {"shape", or_null(tensor.shape)}});
  }
  return out;
}

std::string yes_or_no(bool value) { return value ? "yes" : "no"; }

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string events_text(const std::vector<Event>& events) {
  text::TextTable table("lr");
  for (const Event& event : events) {
    table.add({text::shown(event.kind), std::to_string(event.allocation_count)});
  }
  return fmt::format("events ({}, oldest first, with allocations)\n", events.size()) +
         table.text("  ");
}

std::string listing_text(const Listing& listing) {
  text::TextTable allocations("rrrll");
  allocations.add({"slot", "size", "aligned", "tag", "id"});
  for (const Allocation& one : listing.allocations) {
    allocations.add({std::to_string(one.layout_slot), std::to_string(one.size),
                     std::to_string(one.aligned_size), text::shown(one.tag),
                     text::shown(one.allocation_id.value())});
  }
  text::TextTable tensors("lllrr");
  tensors.add({"name", "dtype", "shape", "allocation", "offset"});
  for (const TensorRecord& tensor : listing.tensors) {
    tensors.add({text::shown(tensor.name), tensor.dtype ? text::shown(*tensor.dtype) : "?",
                 tensor.shape ? shape_text(*tensor.shape) : "?",
                 tensor.rank ? std::to_string(*tensor.rank) : "?",
                 std::to_string(tensor.offset_bytes)});
  }
  return fmt::format("allocations ({}, sizes in bytes)\n{}tensors ({}, offsets in bytes)\n{}",
                     listing.allocations.size(), allocations.text("  "), listing.tensors.size(),
                     tensors.text("  "));
}

}  // namespace

Stat read_stat(const std::string& socket, const StatRequest& request, const Deadline& deadline) {
  Stat stat;
  stat.socket = socket;
  do {
    stat.state = connect(socket, request, deadline).runtime_state();
    if (!request.list) break;
    const char* reason = why_no_reader(stat.state);
    stat.not_listed = reason == nullptr ? "" : reason;
    stat.listing.reset();
    if (reason == nullptr) stat.listing = read_listing(socket, request, deadline, stat.not_listed);
    // Another layout may have been published between the two responses; then the state is outdated.
    // Servers of the older protocol do not report a hash there.
  } while (stat.listing && !stat.state.memory_layout_hash.empty() &&
           stat.listing->memory_layout_hash != stat.state.memory_layout_hash);
  if (request.events) stat.events = connect(socket, request, deadline).event_history();
  return stat;
}

std::string to_json(const Stat& stat) { return fo::json::dump(to_object(stat)); }

std::string to_text(const Stat& stat) {
  const GetRuntimeStateResponse& state = stat.state;
  text::TextTable table("ll");
  table.add({"socket", text::shown(stat.socket)});
  table.add({"state", text::shown(state.state)});
  table.add({"committed", yes_or_no(state.committed)});
  table.add({"layout committed", yes_or_no(state.layout_committed)});
  table.add({"ready", yes_or_no(state.is_ready)});
  table.add({"writer", yes_or_no(state.has_rw_session)});
  table.add({"waiting writers", std::to_string(state.waiting_writers)});
  table.add({"readers", std::to_string(state.ro_session_count)});
  table.add({"allocations", std::to_string(state.allocation_count)});
  if (state.allocated_bytes) {
    const auto bytes = static_cast<base::ByteCount>(*state.allocated_bytes);
    std::string text = base::counted(bytes, "byte");
    if (bytes >= base::kKiB) text += " (" + base::format_size(bytes) + ")";
    table.add({"allocated", std::move(text)});
  }
  table.add({"layout hash", state.memory_layout_hash.empty()
                                ? "none"
                                : text::shown(state.memory_layout_hash.value())});
  std::string out = table.text("");
  if (stat.events) out += events_text(*stat.events);
  if (stat.listing) out += listing_text(*stat.listing);
  if (!stat.not_listed.empty()) out += "layout not listed: " + stat.not_listed + "\n";
  return out;
}

StatRow read_row(FoundSocket socket, const StatRequest& request, const Deadline& deadline) {
  StatRow row;
  row.socket = std::move(socket);
  try {
    row.stat = read_stat(row.socket.path, request, deadline);
  } catch (const Error& error) {
    row.error = error.what();
    row.status = error.status();
  }
  return row;
}

std::vector<StatRow> read_all_stats(const std::string& dir, const StatRequest& request,
                                    const Deadline& deadline) {
  std::vector<FoundSocket> sockets = find_sockets(dir);
  if (sockets.empty()) {
    throw Error(base::ExitStatus::kUnavailable,
                "look for sockets in " + base::quoted(dir) + ": none found");
  }
  std::vector<StatRow> rows;
  auto left = static_cast<std::int64_t>(sockets.size());
  for (FoundSocket& socket : sockets) {
    const auto time = deadline.remaining();
    const Deadline share = time ? Deadline::after(*time / left) : Deadline::never();
    --left;
    rows.push_back(read_row(std::move(socket), request, share));
  }
  return rows;
}

std::string to_json(const StatRow& row) {
  json out =
      row.stat ? to_object(*row.stat) : json{{"socket", row.socket.path}, {"error", row.error}};
  out["device"] = row.socket.device ? json(row.socket.device->value()) : json();
  out["tag"] = row.socket.tag;
  return fo::json::dump(out);
}

std::vector<std::string> cells_of(const StatRow& row, const std::string& absence) {
  const std::string device = row.socket.device ? std::to_string(row.socket.device->value()) : "?";
  const std::string tag = text::shown(row.socket.tag);
  const std::string socket = text::shown(row.socket.path);
  if (!row.stat) return {device, tag, absence, "", "", "", "", "", "", socket};
  const GetRuntimeStateResponse& state = row.stat->state;
  return {device,
          tag,
          text::shown(state.state),
          state.has_rw_session ? "1" : "0",
          std::to_string(state.waiting_writers),
          std::to_string(state.ro_session_count),
          std::to_string(state.allocation_count),
          state.allocated_bytes
              ? base::format_size(static_cast<base::ByteCount>(*state.allocated_bytes))
              : "?",
          text::shown(std::string_view(state.memory_layout_hash.value()).substr(0, kShortHash)),
          socket};
}

std::string to_text(const std::vector<StatRow>& rows) {
  text::TextTable table("rllrrrrrll");
  table.add({"device", "tag", "state", "writer", "waiting", "readers", "allocations", "allocated",
             "layout hash", "socket"});
  for (const StatRow& row : rows) table.add(cells_of(row, "no answer"));
  return table.text("");
}

}  // namespace fo::gms
