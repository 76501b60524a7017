#include "gms/client/rpc_client.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "base/text.h"
#include "gms/protocol/endpoint.h"
#include "os/pause.h"
#include "os/socket/fd_passing.h"
#include "os/socket/unix_socket.h"
#include "text/table.h"

namespace fo::gms {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using base::UniqueFd;

// Added to the server's time to grant a lock, so that its answer can arrive.
constexpr base::Duration kAnswerTime = std::chrono::milliseconds(500);

template <typename Answer>
void check_sizes(const Answer& answer) {
  if (answer.size < 0 || answer.aligned_size <= 0 || answer.aligned_size < answer.size ||
      answer.layout_slot < 0) {
    throw Error(
        ExitStatus::kProtocol,
        "GMS allocation " + base::quoted(answer.allocation_id.value()) + ": invalid size or slot");
  }
}

Allocation to_allocation(const GetAllocationResponse& answer) {
  check_sizes(answer);
  return {answer.allocation_id, static_cast<base::ByteCount>(answer.size),
          static_cast<base::ByteCount>(answer.aligned_size), answer.tag,
          static_cast<std::uint64_t>(answer.layout_slot)};
}

// Our servers send an exit status as the code; Dynamo's sends 0.
ExitStatus status_of_code(std::int64_t code) {
  for (const ExitStatus known :
       {ExitStatus::kTryAgain, ExitStatus::kNotPermitted, ExitStatus::kProtocol,
        ExitStatus::kSoftware, ExitStatus::kOsError, ExitStatus::kIoError}) {
    if (code == base::to_int(known)) return known;
  }
  return ExitStatus::kBadData;
}

// The kernel reports which user made the socket listen.
void check_server(int socket, const std::string& path, std::optional<uid_t> accepted) {
  const uid_t uid = os::peer_credentials(socket).uid;
  const uid_t own = ::geteuid();
  if (uid == 0 || uid == own || uid == accepted) return;
  const std::string or_own = own == 0 ? "" : " or user " + std::to_string(own);
  throw Error(ExitStatus::kNotPermitted,
              "connect to socket " + base::quoted(path) + ": it is served by user " +
                  std::to_string(uid) + ", not by root" + or_own +
                  " (--server-uid or GMS_SERVER_UID accepts another user)");
}

}  // namespace

RpcClient RpcClient::connect(const std::string& socket_path, const Deadline& deadline, Retry retry,
                             std::optional<uid_t> server_uid) {
  if (!server_uid) server_uid = server_uid_from_environment();
  for (;;) {
    try {
      UniqueFd socket = os::connect_unix(socket_path, deadline);
      check_server(socket.get(), socket_path, server_uid);
      if (::fcntl(socket.get(), F_SETFL, O_NONBLOCK) != 0) {
        base::throw_errno(errno, "use socket " + base::quoted(socket_path));
      }
      return {socket_path, std::move(socket), deadline};
    } catch (const Error& error) {
      const bool absent = error.status() == ExitStatus::kUnavailable;
      if (!absent || retry == Retry::kNever || deadline.expired()) throw;
    }
    os::pause_for(std::chrono::milliseconds(50), deadline);
  }
}

void RpcClient::gone(const std::string& reason) const {
  throw Error(ExitStatus::kUnavailable, "query the GMS at " + base::quoted(path_) + ": " + reason);
}

void RpcClient::wait_for(short events) {
  pollfd state{socket_.get(), events, 0};
  for (;;) {
    const int ready = ::poll(&state, 1, call_deadline_.poll_timeout());
    if (ready > 0) return;
    if (ready == 0) {
      throw Error(ExitStatus::kTryAgain, "query the GMS at " + base::quoted(path_) + ": timed out");
    }
    if (errno != EINTR) base::throw_errno(errno, "wait for the GMS at " + base::quoted(path_));
  }
}

void RpcClient::send(std::string_view frame) {
  std::span<const std::byte> bytes = std::as_bytes(std::span(frame));
  while (!bytes.empty()) {
    const std::ptrdiff_t sent = os::send_with_fds(socket_.get(), bytes, {});
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (sent == -EAGAIN) {
      wait_for(POLLOUT);
    } else {
      gone(std::generic_category().message(static_cast<int>(-sent)));
    }
  }
}

std::string RpcClient::receive(std::vector<UniqueFd>& fds) {
  std::string buffer = std::exchange(surplus_, {});
  std::array<std::byte, std::size_t{64} * 1024> chunk;
  for (;;) {
    if (buffer.size() >= kPrefixSize) {
      const std::size_t size = read_prefix(buffer);
      if (size > kMaxResponseFrame) {
        throw Error(ExitStatus::kProtocol, "query the GMS at " + base::quoted(path_) +
                                               ": invalid answer size: " + std::to_string(size) +
                                               " bytes");
      }
      if (buffer.size() - kPrefixSize >= size) {
        surplus_ = buffer.substr(kPrefixSize + size);
        buffer.erase(kPrefixSize + size);
        buffer.erase(0, kPrefixSize);
        return buffer;
      }
    }
    // Does not try to read first: no answer arrives that fast.
    wait_for(POLLIN);
    const std::ptrdiff_t got = os::receive_with_fds(socket_.get(), chunk, fds);
    if (got == 0) gone("it closed the connection");
    if (got == -EAGAIN) continue;
    if (got == -EMSGSIZE) gone("no descriptors left for those that it sends (ulimit -n)");
    if (got < 0) {
      gone(std::generic_category().message(static_cast<int>(-got)));
    } else {
      buffer.append(reinterpret_cast<const char*>(chunk.data()), static_cast<std::size_t>(got));
    }
  }
}

template <typename Response, typename RequestMessage>
Response RpcClient::call(const RequestMessage& request, std::vector<UniqueFd>* fds) {
  return call_until<Response>(Deadline::after(kCallTimeout).sooner(deadline_), request, fds);
}

template <typename Response, typename RequestMessage>
Response RpcClient::call_until(const Deadline& deadline, const RequestMessage& request,
                               std::vector<UniqueFd>* fds) {
  ask(deadline, request);
  return read_response<Response, RequestMessage>(fds);
}

template <typename RequestMessage>
void RpcClient::ask(const Deadline& deadline, const RequestMessage& request) {
  if (!socket_) gone("an earlier request was not answered");
  call_deadline_ = deadline;
  const std::string frame = encode_frame(request, kMaxRequestFrame);
  try {
    if (std::exchange(requested_ahead_, std::nullopt)) {
      std::vector<UniqueFd> nobodys;
      receive(nobodys);
    }
    send(frame);
  } catch (const Error&) {
    socket_.reset();
    throw;
  }
}

template <typename Response, typename RequestMessage>
Response RpcClient::read_response(std::vector<UniqueFd>* fds) {
  std::vector<UniqueFd> received;
  std::string body;
  try {
    body = receive(received);
  } catch (const Error&) {
    socket_.reset();  // otherwise a late answer would be taken for that of the next request
    throw;
  }
  if (message_type(body) == ErrorResponse::kType) {
    const auto error = decode_message<ErrorResponse>(body);
    throw RequestRefused(status_of_code(error.code), "GMS at " + base::quoted(path_) + " refused " +
                                                         std::string(RequestMessage::kType) + ": " +
                                                         text::shown_message(error.error));
  }
  auto response = decode_message<Response>(body);
  if (fds == nullptr && !received.empty()) came_with(Response::kType, received.size());
  if (fds != nullptr) *fds = std::move(received);
  return response;
}

void RpcClient::came_with(std::string_view type, std::size_t fds) const {
  throw Error(ExitStatus::kProtocol, "GMS at " + base::quoted(path_) + ": " + std::string(type) +
                                         " came with " + base::counted(fds, "descriptor"));
}

bool RpcClient::offers(std::string_view extension) const {
  return std::find(extensions_.begin(), extensions_.end(), extension) != extensions_.end();
}

GetRuntimeStateResponse RpcClient::runtime_state() {
  return call<GetRuntimeStateResponse>(GetRuntimeStateRequest{});
}

std::vector<Event> RpcClient::event_history() {
  return call<GetEventHistoryResponse>(GetEventHistoryRequest{}).events;
}

Handshake RpcClient::request_lock(LockType type, const Deadline& deadline) {
  HandshakeRequest request{std::string(to_string(type)), std::nullopt};
  const auto left = deadline.remaining();
  if (left) {
    request.timeout_ms = std::chrono::ceil<std::chrono::milliseconds>(*left).count();
  }
  Deadline answer_by = left ? Deadline::after(*left + kAnswerTime) : Deadline::never();
  // The deadline of calls applies if it leaves the server its time.
  if (left && deadline_.at() > deadline.at()) answer_by = answer_by.sooner(deadline_);
  auto response = call_until<HandshakeResponse>(answer_by, request, nullptr);
  extensions_ = std::move(response.extensions);
  Handshake result{std::nullopt, response.committed};
  if (!response.success) return result;
  result.grant = parse_grant(response.granted_lock_type.value_or(""));
  if (!result.grant) {
    throw Error(ExitStatus::kProtocol,
                "GMS at " + base::quoted(path_) + ": granted " +
                    base::quoted(response.granted_lock_type.value_or("nothing")));
  }
  return result;
}

AllocateResponse RpcClient::allocate(base::ByteCount size, const std::string& tag) {
  auto made = call<AllocateResponse>(AllocateRequest{static_cast<std::int64_t>(size), tag});
  check_sizes(made);
  return made;
}

std::vector<AllocateResponse> RpcClient::allocate_many(const std::vector<base::ByteCount>& sizes,
                                                       const std::string& tag) {
  std::vector<AllocateResponse> made;
  if (!offers(kAllocateMany)) {
    for (const base::ByteCount size : sizes) made.push_back(allocate(size, tag));
    return made;
  }
  for (std::size_t at = 0; at < sizes.size(); at += kMaxBatch) {
    AllocateManyRequest request;
    for (std::size_t i = at; i < std::min(sizes.size(), at + kMaxBatch); ++i) {
      request.allocations.push_back({static_cast<std::int64_t>(sizes[i]), tag});
    }
    auto response = call<AllocateManyResponse>(request);
    if (response.allocations.size() != request.allocations.size()) {
      throw Error(ExitStatus::kProtocol,
                  "GMS at " + base::quoted(path_) + ": " +
                      base::counted(response.allocations.size(), "allocation") + " instead of " +
                      std::to_string(request.allocations.size()));
    }
    for (const AllocateResponse& one : response.allocations) {
      check_sizes(one);
      made.push_back(one);
    }
  }
  return made;
}

bool RpcClient::free_allocation(const AllocationId& allocation_id) {
  return call<FreeAllocationResponse>(FreeAllocationRequest{allocation_id}).success;
}

void RpcClient::put_metadata(const std::string& key, const AllocationId& allocation_id,
                             base::ByteCount offset, std::string value) {
  const MetadataPutRequest request{
      {key, allocation_id, static_cast<std::int64_t>(offset), Bytes{std::move(value)}}};
  if (!call<MetadataPutResponse>(request).success) {
    throw RequestRefused(ExitStatus::kBadData, "GMS at " + base::quoted(path_) +
                                                   " refused the metadata " + base::quoted(key));
  }
}

void RpcClient::put_metadata_many(const Metadata& metadata) {
  if (!offers(kMetadataPutMany)) {
    for (const auto& [key, entry] : metadata) {
      put_metadata(key, entry.allocation_id, entry.offset_bytes, entry.value);
    }
    return;
  }
  MetadataPutManyRequest batch;
  std::size_t size = 0;
  const auto send = [&] {
    if (!call<MetadataPutManyResponse>(batch).success) {
      throw RequestRefused(ExitStatus::kBadData,
                           "GMS at " + base::quoted(path_) + " refused the metadata");
    }
    batch.entries.clear();
    size = 0;
  };
  for (const auto& [key, entry] : metadata) {
    size += size_on_wire(key, entry);
    if (size > kMetadataPage && !batch.entries.empty()) send();
    batch.entries.push_back(to_record(key, entry));
  }
  if (!batch.entries.empty()) send();
}

bool RpcClient::delete_metadata(const std::string& key) {
  return call<MetadataDeleteResponse>(MetadataDeleteRequest{key}).deleted;
}

void RpcClient::commit() {
  if (!call<CommitResponse>(CommitRequest{}).success) {
    throw RequestRefused(ExitStatus::kBadData,
                         "GMS at " + base::quoted(path_) + " refused to commit");
  }
}

LayoutHash RpcClient::seal() {
  auto response = call<CommitLayoutResponse>(CommitLayoutRequest{});
  if (!response.success) {
    throw RequestRefused(ExitStatus::kBadData,
                         "GMS at " + base::quoted(path_) + " refused to seal the layout");
  }
  return std::move(response.memory_layout_hash);
}

std::vector<Allocation> RpcClient::list_allocations(std::optional<std::string> tag) {
  const auto response = call<ListAllocationsResponse>(ListAllocationsRequest{std::move(tag)});
  std::vector<Allocation> allocations;
  allocations.reserve(response.allocations.size());
  for (const auto& one : response.allocations) allocations.push_back(to_allocation(one));
  return allocations;
}

Allocation RpcClient::get_allocation(const AllocationId& allocation_id) {
  return to_allocation(call<GetAllocationResponse>(GetAllocationRequest{allocation_id}));
}

UniqueFd RpcClient::export_allocation(const AllocationId& allocation_id) {
  std::vector<UniqueFd> fds;
  call<ExportAllocationResponse>(ExportAllocationRequest{allocation_id}, &fds);
  if (fds.size() != 1) came_with(ExportAllocationResponse::kType, fds.size());
  return std::move(fds.front());
}

std::vector<UniqueFd> RpcClient::export_from(const std::vector<Allocation>& allocations,
                                             std::size_t rank) {
  std::vector<UniqueFd> fds;
  if (!offers(kExportLayout)) {
    fds.push_back(export_allocation(allocations[rank].allocation_id));
    return fds;
  }
  const Deadline deadline = Deadline::after(kCallTimeout).sooner(deadline_);
  const auto request_from = [&](std::size_t first) {
    const auto slot = static_cast<std::int64_t>(allocations[first].layout_slot);
    if (requested_ahead_ != slot) ask(deadline, ExportLayoutRequest{std::nullopt, slot});
    return slot;
  };
  request_from(rank);
  requested_ahead_.reset();
  call_deadline_ = deadline;
  const auto response = read_response<ExportLayoutResponse, ExportLayoutRequest>(&fds);
  const auto& exported = response.allocations;
  if (fds.empty() || fds.size() != exported.size()) came_with(response.kType, fds.size());
  for (std::size_t i = 0; i < exported.size(); ++i) {
    if (rank + i >= allocations.size() ||
        exported[i].allocation_id != allocations[rank + i].allocation_id) {
      throw Error(ExitStatus::kProtocol, "GMS at " + base::quoted(path_) +
                                             ": exported a different allocation than requested");
    }
  }
  // The server prepares the next ones while the caller processes these.
  if (rank + fds.size() < allocations.size()) requested_ahead_ = request_from(rank + fds.size());
  return fds;
}

std::vector<std::string> RpcClient::list_metadata(const std::string& prefix) {
  return call<MetadataListResponse>(MetadataListRequest{prefix}).keys;
}

std::optional<MetadataEntry> RpcClient::get_metadata(const std::string& key) {
  auto response = call<MetadataGetResponse>(MetadataGetRequest{key});
  if (!response.found) return std::nullopt;
  if (!response.allocation_id || !response.offset_bytes || *response.offset_bytes < 0 ||
      !response.value) {
    throw Error(ExitStatus::kProtocol,
                "GMS at " + base::quoted(path_) + ": incomplete metadata for " + base::quoted(key));
  }
  return MetadataEntry{std::move(*response.allocation_id),
                       static_cast<base::ByteCount>(*response.offset_bytes),
                       std::move(response.value->data)};
}

Metadata RpcClient::fetch_metadata() {
  Metadata metadata;
  if (!offers(kMetadataDump)) {
    for (std::string& key : list_metadata()) {
      std::optional<MetadataEntry> entry = get_metadata(key);
      if (entry) metadata.emplace(std::move(key), std::move(*entry));
    }
    return metadata;
  }
  MetadataDumpRequest request;
  for (bool more = true; more;) {
    auto page = call<MetadataDumpResponse>(request);
    more = page.more;
    for (MetadataRecord& one : page.entries) {
      if (one.offset_bytes < 0 || (!metadata.empty() && one.key <= request.after)) {
        throw Error(ExitStatus::kProtocol, "GMS at " + base::quoted(path_) +
                                               ": invalid metadata for " + base::quoted(one.key));
      }
      request.after = one.key;
      metadata.emplace_hint(
          metadata.end(), std::move(one.key),
          MetadataEntry{std::move(one.allocation_id),
                        static_cast<base::ByteCount>(one.offset_bytes), std::move(one.value.data)});
    }
    if (more && page.entries.empty()) {
      throw Error(ExitStatus::kProtocol, "GMS at " + base::quoted(path_) + ": endless metadata");
    }
  }
  return metadata;
}

GetLockStateResponse RpcClient::lock_state() {
  return call<GetLockStateResponse>(GetLockStateRequest{});
}

LayoutHash RpcClient::layout_hash() {
  return call<GetMemoryLayoutHashResponse>(GetMemoryLayoutHashRequest{}).memory_layout_hash;
}

}  // namespace fo::gms
