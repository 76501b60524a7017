// One client's blocking connection to a GMS, with a deadline on every call. Needs no CUDA: it
// returns records and file descriptors.
//
// Every call throws Error: kUnavailable if the server is missing or the connection is lost,
// kTryAgain at the deadline, kProtocol for an invalid answer. If the server refuses a request, it
// throws RequestRefused with the server's reason, and the connection stays usable.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"
#include "gms/protocol/protocol.h"
#include "gms/protocol/types.h"

namespace fo::gms {

class RequestRefused : public base::Error {
 public:
  using Error::Error;
};

/// A server's answer to a request for a lock.
struct Handshake {
  /// nullopt: the lock was not granted in time.
  std::optional<Grant> grant;
  bool committed = false;
};

class RpcClient {
 public:
  /// Maximum wait of any call except a handshake, whatever the deadline. It is longer than a server
  /// retries an allocation by default.
  static constexpr base::Duration kCallTimeout = std::chrono::minutes(5);

  enum class Retry {
    kNever,             // a missing socket or a refused connection is an error at once
    kUntilTheDeadline,  // for a first connect: retry every 50 ms
  };
  /// Connects without a handshake. `deadline` also applies to later calls until set_deadline. Any
  /// user may have created the socket, so a server that runs neither as root nor as our own user
  /// nor as `server_uid` (by default $GMS_SERVER_UID) is refused with kNotPermitted.
  static RpcClient connect(const std::string& socket_path, const base::Deadline& deadline,
                           Retry retry = Retry::kNever,
                           std::optional<uid_t> server_uid = std::nullopt);

  /// Queries the state that a server reports without a handshake. The connection is closed
  /// afterwards.
  GetRuntimeStateResponse runtime_state();
  std::vector<Event> event_history();

  /// Waits for a lock until `deadline` (never: for ever). After a grant the connection is the lock.
  Handshake request_lock(LockType type, const base::Deadline& deadline);

  void set_deadline(const base::Deadline& deadline) { deadline_ = deadline; }

  // If the server does not offer the extension, the calls marked "one by one" use one request per
  // object.

  // For writers.
  AllocateResponse allocate(base::ByteCount size, const std::string& tag);
  /// Allocations of these sizes, in order. If it throws, allocations of earlier batches of
  /// kMaxBatch exist; one by one: the earlier ones.
  std::vector<AllocateResponse> allocate_many(const std::vector<base::ByteCount>& sizes,
                                              const std::string& tag);
  /// False for an unknown id.
  bool free_allocation(const AllocationId& allocation_id);
  void put_metadata(const std::string& key, const AllocationId& allocation_id,
                    base::ByteCount offset, std::string value);
  /// Puts all entries, in as few requests as the limits allow; one by one.
  void put_metadata_many(const Metadata& metadata);
  bool delete_metadata(const std::string& key);
  /// Publishes; the connection is closed afterwards.
  void commit();
  /// Seals; the session continues as rw_data. Returns the layout's hash.
  LayoutHash seal();

  // For readers.
  std::vector<Allocation> list_allocations(std::optional<std::string> tag = std::nullopt);
  Allocation get_allocation(const AllocationId& allocation_id);
  /// A descriptor for the driver to import, owned by the caller.
  base::UniqueFd export_allocation(const AllocationId& allocation_id);
  /// Descriptors for `allocations` (a layout's, in slot order) from `rank` on: as many as one
  /// answer carries, at least one; one by one: one. The next ones are requested ahead, so call it
  /// until all are received.
  std::vector<base::UniqueFd> export_from(const std::vector<Allocation>& allocations,
                                          std::size_t rank);
  std::vector<std::string> list_metadata(const std::string& prefix = "");
  /// All metadata; one by one.
  Metadata fetch_metadata();
  std::optional<MetadataEntry> get_metadata(const std::string& key);
  GetLockStateResponse lock_state();
  LayoutHash layout_hash();

  /// For polling: readable if the server closes the connection.
  [[nodiscard]] int fd() const { return socket_.get(); }

 private:
  /// Sends a request and waits for its answer; `fds` receives its descriptors. Without `fds`, an
  /// answer with descriptors is an error.
  template <typename Response, typename RequestMessage>
  Response call(const RequestMessage& request, std::vector<base::UniqueFd>* fds = nullptr);
  template <typename Response, typename RequestMessage>
  Response call_until(const base::Deadline& deadline, const RequestMessage& request,
                      std::vector<base::UniqueFd>* fds);
  /// The two halves of a call.
  template <typename RequestMessage>
  void ask(const base::Deadline& deadline, const RequestMessage& request);
  template <typename Response, typename RequestMessage>
  Response read_response(std::vector<base::UniqueFd>* fds);
  [[noreturn]] void came_with(std::string_view type, std::size_t fds) const;
  [[nodiscard]] bool offers(std::string_view extension) const;
  RpcClient(std::string path, base::UniqueFd socket, const base::Deadline& deadline)
      : path_(std::move(path)), socket_(std::move(socket)), deadline_(deadline) {}
  void send(std::string_view frame);
  std::string receive(std::vector<base::UniqueFd>& fds);
  void wait_for(short events);
  [[noreturn]] void gone(const std::string& reason) const;

  std::string path_;
  base::UniqueFd socket_;
  base::Deadline deadline_ = base::Deadline::never();
  base::Deadline call_deadline_ = base::Deadline::never();
  /// Bytes received after the end of the last answer.
  std::string surplus_;
  std::vector<std::string> extensions_;
  /// The first slot of an export that was requested and not received yet.
  std::optional<std::int64_t> requested_ahead_;
};

}  // namespace fo::gms
