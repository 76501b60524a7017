// The state of one server as a pure machine: who is connected and who waits, what layout there is
// and how final it is, and what happened. No fd, no clock, no CUDA: sessions are numbers, and
// whether a waiting client still lives is asked of the caller.
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

/// The server's history keeps this many events, the newest.
inline constexpr std::size_t kMaxEvents = 256;

class ServerModel {
 public:
  /// A client asks for a lock and waits from now on, in the order of arrival.
  SessionId arrive(LockType type);

  struct Granted {
    SessionId session;
    Grant grant;
  };
  /// Grants the lock to the first waiting client that may have it, and applies what the grant does
  /// to the layout; nullopt when nobody may. Call it until then after anything that may free the
  /// lock. `is_alive` is asked about a client right before it is granted anything; one that is not
  /// stops waiting and changes nothing.
  std::optional<Granted> grant_next(const std::function<bool(SessionId)>& is_alive);

  /// A client is gone: waiting, granted or neither any more.
  void leave(SessionId session);

  /// What the session holds now; nullopt while it waits.
  [[nodiscard]] std::optional<Grant> grant_of(SessionId session) const;

  /// Seals the layout and narrows its writer to kRwData. Only for the kRw session. `hash` is the
  /// layout's.
  void seal(std::string hash);
  /// Publishes the layout; its writer's session is over. Only for the kRw session.
  void publish(std::string hash);
  /// The layout of a server that died, sealed or published. Only before the first client.
  void restore(Layout layout, std::string hash, bool published);

  [[nodiscard]] ServerState state() const;
  /// How many sessions hold, and how many wait for, one kind of lock.
  [[nodiscard]] std::size_t sessions(Grant grant) const;
  [[nodiscard]] std::size_t waiting(LockType type) const;
  [[nodiscard]] GetLockStateResponse lock_state() const;
  [[nodiscard]] GetRuntimeStateResponse runtime_state() const;
  /// Empty when nothing is published or sealed.
  [[nodiscard]] const std::string& hash() const { return hash_; }
  [[nodiscard]] bool published() const { return stage_ == Stage::kPublished; }

  void add_event(std::string kind, std::size_t allocation_count = 0);
  [[nodiscard]] std::vector<Event> events() const { return {events_.begin(), events_.end()}; }

  /// For the writer's requests.
  [[nodiscard]] Layout& layout() { return layout_; }
  [[nodiscard]] const Layout& layout() const { return layout_; }

  /// The number of layouts dropped so far: memory kept for an earlier one is to be released.
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
  // Of the last layout that was dropped with allocations in it.
  base::ByteCount released_bytes_ = 0;
  std::string hash_;
  std::deque<Event> events_;
};

}  // namespace fo::gms
