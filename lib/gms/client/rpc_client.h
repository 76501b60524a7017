// One client's connection to a GMS, blocking, with a deadline on every call. Needs no CUDA: what it
// hands out is records and file descriptors.
//
// Every call throws Error: kUnavailable when the server is not there or goes away, kTryAgain when
// the deadline passes, kProtocol for an answer that is none. A request that the server refuses is a
// RequestRefused with the server's reason, after which the connection lives on.
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
  /// nullopt: the time was over before the lock could be granted.
  std::optional<Grant> grant;
  bool committed = false;
};

class RpcClient {
 public:
  /// The most that any call but a handshake waits, whatever the deadline: a server that says
  /// nothing for so long is not going to. Longer than a server tries to find memory by default.
  static constexpr base::Duration kCallTimeout = std::chrono::minutes(5);

  enum class Retry {
    kNever,             // a socket that is missing or refuses is an error at once
    kUntilTheDeadline,  // for a first connect: look again every 50 ms
  };
  /// Connects without shaking hands. `deadline` is also that of the calls that follow, until
  /// set_deadline. Anybody may have made the socket: a server that runs neither as root nor as our
  /// own user nor as `server_uid` (by default $GMS_SERVER_UID) is refused with kNotPermitted.
  static RpcClient connect(const std::string& socket_path, const base::Deadline& deadline,
                           Retry retry = Retry::kNever,
                           std::optional<uid_t> server_uid = std::nullopt);

  /// What a server tells without a handshake. The connection is over afterwards.
  GetRuntimeStateResponse runtime_state();
  std::vector<Event> event_history();

  /// Waits for a lock until `deadline` (never: for ever). After a grant the connection is the lock.
  Handshake shake_hands(LockType type, const base::Deadline& deadline);

  void set_deadline(const base::Deadline& deadline) { deadline_ = deadline; }

  // What says "one by one" works with every server: where it does not offer the extension, each
  // object takes a request of its own.

  // For writers.
  AllocateResponse allocate(base::ByteCount size, const std::string& tag);
  /// Allocations of these sizes, in their order. Where it throws, those of earlier batches of
  /// kMaxBatch were made; one by one: those before it.
  std::vector<AllocateResponse> allocate_many(const std::vector<base::ByteCount>& sizes,
                                              const std::string& tag);
  /// False for an unknown id.
  bool free_allocation(const std::string& allocation_id);
  void put_metadata(const std::string& key, const std::string& allocation_id,
                    base::ByteCount offset, std::string value);
  /// All of it, in as few requests as their limit allows; one by one.
  void put_metadata_many(const Metadata& metadata);
  bool delete_metadata(const std::string& key);
  /// Publishes; the connection is over afterwards.
  void commit();
  /// Seals; the session goes on as rw_data. Returns the layout's hash.
  std::string seal();

  // For readers.
  std::vector<Allocation> list_allocations(std::optional<std::string> tag = std::nullopt);
  Allocation get_allocation(const std::string& allocation_id);
  /// A descriptor for the driver to import, owned by the caller.
  base::UniqueFd export_allocation(const std::string& allocation_id);
  /// Descriptors for `allocations`, which are a layout's in slot order, from `rank` on: as many as
  /// one answer carries, at least one; one by one: one. The next ones are asked for ahead: call it
  /// until all are there.
  std::vector<base::UniqueFd> export_from(const std::vector<Allocation>& allocations,
                                          std::size_t rank);
  std::vector<std::string> list_metadata(const std::string& prefix = "");
  /// All metadata; one by one.
  Metadata fetch_metadata();
  std::optional<MetadataEntry> get_metadata(const std::string& key);
  GetLockStateResponse lock_state();
  std::string layout_hash();

  /// For polling: readable when the server closes the connection.
  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] const std::string& socket_path() const { return path_; }

 private:
  /// Sends a request and waits for its answer; `fds` takes the descriptors that came along. None
  /// may where it is not given.
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
  /// Bytes received beyond the last answer's end.
  std::string surplus_;
  std::vector<std::string> extensions_;
  /// The slot from which an export was asked for that nobody has taken yet.
  std::optional<std::int64_t> requested_ahead_;
};

}  // namespace fo::gms
