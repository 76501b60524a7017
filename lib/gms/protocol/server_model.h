// The state of one server as a pure state machine: its clients and waiters, its layout, and its
// history. No fd, no clock, no CUDA: sessions are numbers, and the caller reports whether a waiting
// client is still connected.
//
// Layout:      kOpen ──seal──▶ kSealed ──commit is refused; only adopted or replaced
//                └────commit──▶ kPublished
//
//   event                            layout afterwards        history
//   rw granted                       dropped, kOpen           allocations_cleared (if published),
//                                                             rw_connected
//   rw_data granted (from sealed)    kept, kSealed            rw_connected
//   ro granted                       kept, kPublished         –
//   seal by rw                       kSealed, grant rw_data   layout_committed
//   commit by rw                     kPublished, writer gone  committed
//   writer leaves, kOpen             dropped                  rw_aborted, allocations_cleared
//   writer leaves, kSealed           kept                     rw_disconnected
//   reader or waiter leaves          kept                     –
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gms/protocol/layout.h"
#include "gms/protocol/protocol.h"
#include "gms/protocol/types.h"

namespace fo::gms {

using SessionId = std::uint64_t;

/// Maximum number of events in the server's history; the oldest are removed.
inline constexpr std::size_t kMaxEvents = 256;

class ServerModel {
 public:
  /// A client requests a lock and waits from now on, in order of arrival.
  SessionId enqueue(LockType type);

  struct Granted {
    SessionId session;
    Grant grant;
  };
  /// Grants the lock to the first waiting client that may have it, and applies the grant to the
  /// layout; nullopt if there is none. Call it until it returns nullopt after anything that may
  /// free the lock. `is_alive` is called for a client right before its grant; a disconnected one
  /// stops waiting and changes nothing.
  std::optional<Granted> grant_next(const std::function<bool(SessionId)>& is_alive);

  /// A client has disconnected, whether it waited, held a lock or neither.
  void disconnect(SessionId session);

  /// The session's grant; nullopt while it waits.
  [[nodiscard]] std::optional<Grant> grant_of(SessionId session) const;

  /// Seals the layout and narrows its writer to kRwData. Only for the kRw session. `hash` is that
  /// of the layout.
  void seal(LayoutHash hash);
  /// Publishes the layout and ends its writer's session. Only for the kRw session.
  void publish(LayoutHash hash);
  /// Restores the sealed or published layout of a server that died. Only before the first client.
  void restore(Layout layout, LayoutHash hash, bool published);

  [[nodiscard]] ServerState state() const;
  /// The number of sessions that hold, or wait for, a kind of lock.
  [[nodiscard]] std::size_t sessions(Grant grant) const;
  [[nodiscard]] std::size_t waiting(LockType type) const;
  [[nodiscard]] GetLockStateResponse lock_state() const;
  [[nodiscard]] GetRuntimeStateResponse runtime_state() const;
  /// Empty if nothing is published or sealed.
  [[nodiscard]] const LayoutHash& hash() const { return hash_; }
  [[nodiscard]] bool published() const { return stage_ == Stage::kPublished; }

  void add_event(std::string kind, std::size_t allocation_count = 0);
  [[nodiscard]] std::vector<Event> events() const { return {events_.begin(), events_.end()}; }

  /// For the writer's requests.
  [[nodiscard]] Layout& layout() { return layout_; }
  [[nodiscard]] const Layout& layout() const { return layout_; }

  /// The number of layouts dropped so far; memory of earlier ones must be released.
  [[nodiscard]] std::uint64_t layout_epoch() const { return layout_epoch_; }

 private:
  enum class Stage { kOpen, kSealed, kPublished };

  struct Waiting {
    SessionId session;
    LockType type;
  };

  [[nodiscard]] std::optional<Grant> possible_grant(LockType type, bool writer_waits) const;
  [[nodiscard]] std::size_t waiting_writers() const;
  void drop_layout();

  SessionId next_session_ = 1;
  std::deque<Waiting> waiting_;
  std::map<SessionId, Grant> granted_;
  std::size_t readers_ = 0;
  bool has_writer_ = false;
  Stage stage_ = Stage::kOpen;
  Layout layout_;
  std::uint64_t layout_epoch_ = 0;
  // Size of the last layout that was dropped with allocations.
  base::ByteCount released_bytes_ = 0;
  LayoutHash hash_;
  std::deque<Event> events_;
};

}  // namespace fo::gms
