// The messages of the GMS wire protocol, gms-protocol(7), one struct each. A struct names its
// fields in FO_FIELDS, for encoding and decoding. Frames and descriptors are handled elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gms/protocol/types.h"

namespace fo::gms {

/// Maximum size of a message without its length prefix.
inline constexpr std::size_t kMaxRequestFrame = 16u << 20;
inline constexpr std::size_t kMaxResponseFrame = 64u << 20;
/// Maximum size of one metadata value.
inline constexpr std::size_t kMaxMetadataValue = 4u << 20;
/// Maximum number of elements of a list: an element takes far more memory than bytes in a frame.
inline constexpr std::size_t kMaxListSize = 1u << 20;
/// Approximate maximum size of one page of a metadata dump, unless a single entry is larger.
inline constexpr std::size_t kMetadataPage = 4u << 20;
/// Maximum number of allocations, or of keys, in one batch.
inline constexpr std::size_t kMaxBatch = 65536;

/// The names of the extensions to Dynamo's protocol, which a server offers in its handshake
/// response.
inline constexpr std::string_view kExportLayout = "export_layout";
inline constexpr std::string_view kMetadataDump = "metadata_dump";
inline constexpr std::string_view kAllocateMany = "allocate_many";
inline constexpr std::string_view kMetadataPutMany = "metadata_put_many";
/// A frame's length prefix, big-endian.
inline constexpr std::size_t kPrefixSize = 4;

// FO_FIELDS(a, b) defines `each_field`, which calls visit("a", self.a), then visit("b", self.b).
// Each expansion of FO_VISIT handles one field, and FO_EXPAND expands it more often than any
// message has fields.
#define FO_FIELDS(...)                                                                 \
  static void each_field([[maybe_unused]] auto& self, [[maybe_unused]] auto&& visit) { \
    __VA_OPT__(FO_EXPAND(FO_VISIT(__VA_ARGS__)))                                       \
  }
#define FO_EXPAND(...) FO_EXPAND_3(FO_EXPAND_3(FO_EXPAND_3(__VA_ARGS__)))
#define FO_EXPAND_3(...) FO_EXPAND_1(FO_EXPAND_1(FO_EXPAND_1(__VA_ARGS__)))
#define FO_EXPAND_1(...) __VA_ARGS__
#define FO_VISIT(field, ...) \
  visit(#field, self.field); \
  __VA_OPT__(FO_VISIT_NEXT FO_PARENTHESES(__VA_ARGS__))
#define FO_VISIT_NEXT() FO_VISIT
#define FO_PARENTHESES ()

/// A byte value (msgpack bin), as opposed to text (msgpack str).
struct Bytes {
  std::string data;
};

/// One entry of a server's history. It has no type tag on the wire.
struct Event {
  std::string kind;
  std::int64_t allocation_count = 0;
  FO_FIELDS(kind, allocation_count)
};

/// The common part of two responses about a server.
struct LockState {
  std::string state;
  bool has_rw_session = false;
  std::int64_t ro_session_count = 0;
  std::int64_t waiting_writers = 0;
  bool committed = false;
  bool is_ready = false;
  bool layout_committed = false;
  FO_FIELDS(state, has_rw_session, ro_session_count, waiting_writers, committed, is_ready,
            layout_committed)
};

/// The common part of two responses about an allocation.
struct AllocationRecord {
  AllocationId allocation_id;
  std::int64_t size = 0;
  std::int64_t aligned_size = 0;
  std::string tag = "default";
  std::int64_t layout_slot = 0;
  FO_FIELDS(allocation_id, size, aligned_size, tag, layout_slot)
};

/// One key of a layout, on the wire.
struct MetadataRecord {
  std::string key;
  AllocationId allocation_id;
  std::int64_t offset_bytes = 0;
  Bytes value;
  FO_FIELDS(key, allocation_id, offset_bytes, value)
};

struct HandshakeRequest {
  static constexpr std::string_view kType = "handshake_request";
  std::string lock_type;
  std::optional<std::int64_t> timeout_ms;
  FO_FIELDS(lock_type, timeout_ms)
};

struct HandshakeResponse {
  static constexpr std::string_view kType = "handshake_response";
  bool success = false;
  bool committed = false;
  std::optional<std::string> granted_lock_type;
  std::vector<std::string> extensions = {};
  FO_FIELDS(success, committed, granted_lock_type, extensions)
};

struct GetRuntimeStateRequest {
  static constexpr std::string_view kType = "get_runtime_state_request";
  FO_FIELDS()
};

struct GetRuntimeStateResponse : LockState {
  static constexpr std::string_view kType = "get_runtime_state_response";
  std::int64_t allocation_count = 0;
  LayoutHash memory_layout_hash;
  /// Size of the current allocations, and of those of the last dropped layout. Dynamo's server does
  /// not report them.
  std::optional<std::int64_t> allocated_bytes = {};
  std::optional<std::int64_t> released_bytes = {};
  static void each_field(auto& self, auto&& visit) {
    LockState::each_field(self, visit);
    visit("allocation_count", self.allocation_count);
    visit("memory_layout_hash", self.memory_layout_hash);
    visit("allocated_bytes", self.allocated_bytes);
    visit("released_bytes", self.released_bytes);
  }
};

struct GetEventHistoryRequest {
  static constexpr std::string_view kType = "get_event_history_request";
  FO_FIELDS()
};

struct GetEventHistoryResponse {
  static constexpr std::string_view kType = "get_event_history_response";
  std::vector<Event> events;
  FO_FIELDS(events)
};

struct CommitRequest {
  static constexpr std::string_view kType = "commit_request";
  FO_FIELDS()
};

struct CommitResponse {
  static constexpr std::string_view kType = "commit_response";
  bool success = false;
  FO_FIELDS(success)
};

struct CommitLayoutRequest {
  static constexpr std::string_view kType = "commit_layout_request";
  FO_FIELDS()
};

struct CommitLayoutResponse {
  static constexpr std::string_view kType = "commit_layout_response";
  bool success = false;
  LayoutHash memory_layout_hash;
  std::optional<std::string> granted_lock_type;
  FO_FIELDS(success, memory_layout_hash, granted_lock_type)
};

struct AllocateRequest {
  static constexpr std::string_view kType = "allocate_request";
  std::int64_t size = 0;
  std::string tag = "default";
  FO_FIELDS(size, tag)
};

struct AllocateResponse {
  static constexpr std::string_view kType = "allocate_response";
  AllocationId allocation_id;
  std::int64_t size = 0;
  std::int64_t aligned_size = 0;
  std::int64_t layout_slot = 0;
  FO_FIELDS(allocation_id, size, aligned_size, layout_slot)
};

struct FreeAllocationRequest {
  static constexpr std::string_view kType = "free_allocation_request";
  AllocationId allocation_id;
  FO_FIELDS(allocation_id)
};

struct FreeAllocationResponse {
  static constexpr std::string_view kType = "free_allocation_response";
  bool success = false;
  FO_FIELDS(success)
};

struct MetadataPutRequest : MetadataRecord {
  static constexpr std::string_view kType = "metadata_put_request";
};

struct MetadataPutResponse {
  static constexpr std::string_view kType = "metadata_put_response";
  bool success = false;
  FO_FIELDS(success)
};

struct MetadataDeleteRequest {
  static constexpr std::string_view kType = "metadata_delete_request";
  std::string key;
  FO_FIELDS(key)
};

struct MetadataDeleteResponse {
  static constexpr std::string_view kType = "metadata_delete_response";
  bool deleted = false;
  FO_FIELDS(deleted)
};

struct ExportAllocationRequest {
  static constexpr std::string_view kType = "export_allocation_request";
  AllocationId allocation_id;
  FO_FIELDS(allocation_id)
};

struct ExportAllocationResponse : AllocationRecord {
  static constexpr std::string_view kType = "export_allocation_response";
};

struct GetAllocationRequest {
  static constexpr std::string_view kType = "get_allocation_request";
  AllocationId allocation_id;
  FO_FIELDS(allocation_id)
};

struct GetAllocationResponse : AllocationRecord {
  static constexpr std::string_view kType = "get_allocation_response";
};

struct ListAllocationsRequest {
  static constexpr std::string_view kType = "list_allocations_request";
  std::optional<std::string> tag;
  FO_FIELDS(tag)
};

struct ListAllocationsResponse {
  static constexpr std::string_view kType = "list_allocations_response";
  std::vector<GetAllocationResponse> allocations;
  FO_FIELDS(allocations)
};

struct MetadataGetRequest {
  static constexpr std::string_view kType = "metadata_get_request";
  std::string key;
  FO_FIELDS(key)
};

struct MetadataGetResponse {
  static constexpr std::string_view kType = "metadata_get_response";
  bool found = false;
  std::optional<AllocationId> allocation_id;
  std::optional<std::int64_t> offset_bytes;
  std::optional<Bytes> value;
  FO_FIELDS(found, allocation_id, offset_bytes, value)
};

struct MetadataListRequest {
  static constexpr std::string_view kType = "metadata_list_request";
  std::string prefix;
  FO_FIELDS(prefix)
};

struct MetadataListResponse {
  static constexpr std::string_view kType = "metadata_list_response";
  std::vector<std::string> keys;
  FO_FIELDS(keys)
};

struct GetLockStateRequest {
  static constexpr std::string_view kType = "get_lock_state_request";
  FO_FIELDS()
};

struct GetLockStateResponse : LockState {
  static constexpr std::string_view kType = "get_lock_state_response";
};

struct GetAllocationStateRequest {
  static constexpr std::string_view kType = "get_allocation_state_request";
  FO_FIELDS()
};

struct GetAllocationStateResponse {
  static constexpr std::string_view kType = "get_allocation_state_response";
  std::int64_t allocation_count = 0;
  FO_FIELDS(allocation_count)
};

struct GetMemoryLayoutHashRequest {
  static constexpr std::string_view kType = "get_memory_layout_hash_request";
  FO_FIELDS()
};

struct GetMemoryLayoutHashResponse {
  static constexpr std::string_view kType = "get_memory_layout_hash_response";
  LayoutHash memory_layout_hash;
  FO_FIELDS(memory_layout_hash)
};

/// The extension kExportLayout. The response carries one descriptor for each allocation that it
/// lists, in order, at most os::kMaxFdsPerMessage.
struct ExportLayoutRequest {
  static constexpr std::string_view kType = "export_layout_request";
  std::optional<std::string> tag;
  std::int64_t first_slot = 0;
  FO_FIELDS(tag, first_slot)
};

struct ExportLayoutResponse {
  static constexpr std::string_view kType = "export_layout_response";
  std::vector<GetAllocationResponse> allocations;
  /// The slot for the next request; nullopt at the end.
  std::optional<std::int64_t> next_slot;
  LayoutHash memory_layout_hash;
  FO_FIELDS(allocations, next_slot, memory_layout_hash)
};

/// The extension kMetadataDump: the keys with `prefix` after `after`.
struct MetadataDumpRequest {
  static constexpr std::string_view kType = "metadata_dump_request";
  std::string prefix;
  std::string after;
  FO_FIELDS(prefix, after)
};

struct MetadataDumpResponse {
  static constexpr std::string_view kType = "metadata_dump_response";
  std::vector<MetadataRecord> entries;
  bool more = false;
  FO_FIELDS(entries, more)
};

/// One allocation that a writer requests.
struct AllocationSpec {
  std::int64_t size = 0;
  std::string tag = "default";
  FO_FIELDS(size, tag)
};

/// The extension kAllocateMany: all of them or none, listed in order.
struct AllocateManyRequest {
  static constexpr std::string_view kType = "allocate_many_request";
  static constexpr std::size_t kMaxElements = kMaxBatch;
  std::vector<AllocationSpec> allocations;
  FO_FIELDS(allocations)
};

struct AllocateManyResponse {
  static constexpr std::string_view kType = "allocate_many_response";
  std::vector<AllocateResponse> allocations;
  FO_FIELDS(allocations)
};

/// The extension kMetadataPutMany: all of them or none.
struct MetadataPutManyRequest {
  static constexpr std::string_view kType = "metadata_put_many_request";
  static constexpr std::size_t kMaxElements = kMaxBatch;
  std::vector<MetadataRecord> entries;
  FO_FIELDS(entries)
};

struct MetadataPutManyResponse {
  static constexpr std::string_view kType = "metadata_put_many_response";
  bool success = false;
  FO_FIELDS(success)
};

struct ErrorResponse {
  static constexpr std::string_view kType = "error_response";
  std::string error;
  std::int64_t code = 0;
  FO_FIELDS(error, code)
};

/// The error response for clients of Dynamo's v1 profile, whose decoder accepts exactly these
/// fields.
struct V1ErrorResponse {
  static constexpr std::string_view kType = ErrorResponse::kType;
  std::string message;
  bool out_of_memory = false;
  FO_FIELDS(message, out_of_memory)
};

/// Any request of a client.
using Request =
    std::variant<HandshakeRequest, GetRuntimeStateRequest, GetEventHistoryRequest, CommitRequest,
                 CommitLayoutRequest, AllocateRequest, FreeAllocationRequest, MetadataPutRequest,
                 MetadataDeleteRequest, ExportAllocationRequest, GetAllocationRequest,
                 ListAllocationsRequest, MetadataGetRequest, MetadataListRequest,
                 GetLockStateRequest, GetAllocationStateRequest, GetMemoryLayoutHashRequest,
                 ExportLayoutRequest, MetadataDumpRequest, AllocateManyRequest,
                 MetadataPutManyRequest>;

/// The record of an allocation, and of a key, in responses.
AllocationRecord to_record(const Allocation& allocation);
/// The approximate size of an entry in a message.
std::size_t size_on_wire(const std::string& key, const MetadataEntry& entry);
MetadataRecord to_record(const std::string& key, const MetadataEntry& entry);

/// A whole frame: length prefix and message, with the type first. Throws Error(kBadData) if the
/// message is longer than `limit`.
template <typename Message>
std::string encode_frame(const Message& message, std::size_t limit = kMaxResponseFrame);

/// The message in `body` (a frame without its prefix). Unknown keys are ignored; missing ones keep
/// their defaults. Throws Error(kProtocol) if it is not one msgpack map, has no or an unknown type,
/// or a field of the wrong type; Error(kBadData) for a list with more elements than allowed, before
/// any is read. Integers beyond signed 64 bits are clamped.
Request decode_request(std::string_view body);

/// The `type` of the message in `body`. Throws Error(kProtocol).
std::string message_type(std::string_view body);

/// The part of a first message that shows that its sender uses Dynamo's v1 profile, for example
/// "key 'expected_identity'" or "type 'get_checkpoint_state_request'"; nullopt for any other
/// message. The type alone does not tell: the v1 handshake resembles ours, and v1 sockets have the
/// names of our links. Throws Error(kProtocol).
std::optional<std::string> other_protocol(std::string_view body);

/// The message in `body`, which must be of this type. Throws what decode_request throws.
template <typename Message>
Message decode_message(std::string_view body);

/// The message size in a frame's prefix, which must have kPrefixSize bytes.
std::uint32_t read_prefix(std::string_view prefix);

}  // namespace fo::gms
