// A failover lock that a server keeps, gms-lockd: held by a connection, and by a pipe (the
// lifeline) whose writing end the holder's process tree inherits. A connection that breaks is made
// again: the server gives the lock back to a holder that returns in time.
#pragma once

#include <optional>
#include <string>

#include "base/boot_clock.h"
#include "base/unique_fd.h"
#include "lock/failover_lock.h"
#include "lock/lock_status.h"
#include "lock/lockd/lockd_protocol.h"
#include "net/line_buffer.h"

namespace fo::lock {

/// A waiter that has reached its server waits for it for ever, a holder a little longer than the
/// server's reconnect window.
inline constexpr base::Duration kBeyondWindow = std::chrono::seconds(2);

class LockdLock final : public FailoverLock {
 public:
  /// Connects to nothing yet. Throws kConfig for the id, kUsage for a path that is too long.
  LockdLock(std::string path, std::string id, base::Duration first_contact = kFirstContact);

  /// Throws kUnavailable for a server that was not reached within `first_contact`, kNotPermitted,
  /// kConfig, kProtocol.
  Result acquire(const base::Deadline& deadline, int interrupt_fd = -1,
                 const os::Reminder& reminder = {}) override;

  [[nodiscard]] Watch watch() override;
  /// Lost when the server says that the grant is over (kTryAgain; another may be active), or when
  /// it stays out of reach for too long (kProtocol).
  std::optional<Loss> check() override;
  [[nodiscard]] bool is_confirmed() const override;
  /// The lifeline stays as it is, for the next grant.
  void release() override;
  /// The lifeline's writing end. Nothing is to be written there.
  [[nodiscard]] std::vector<int> fds() const override { return {lifeline_writer_.get()}; }

 private:
  // Connects and asks for the lock. False when the server can't be reached now.
  bool connect();
  // A new pipe under the same number: the end of the old one.
  void renew_lifeline();
  Result abandon(os::LockWait outcome);
  // What came since the last time; nullopt for nothing yet. An end of the connection closes ours.
  std::optional<LockdAnswer> take_answer();
  // A grant or a refusal, when one has come.
  std::optional<LockdAnswer> take_verdict();
  std::optional<Loss> check_connection();
  // The server has given the lock to another, some time since it was last seen to be ours.
  [[nodiscard]] Loss taken(base::ExitStatus status, std::string reason) const;
  // Nobody says whether another has it.
  [[nodiscard]] Loss out_of_reach(std::string reason) const;

  base::Duration first_contact_;
  base::UniqueFd lifeline_writer_;
  base::UniqueFd lifeline_reader_;
  base::UniqueFd socket_;
  net::LineBuffer lines_{kMaxAnswerBytes};
  // Of the grant, once there was one: what is claimed when the connection is made again.
  std::optional<std::uint64_t> generation_;
  std::chrono::milliseconds window_{};
  bool reached_ = false;
  // Why the server could not be reached, the last time.
  std::string error_text_;
  // While the lock is held: without a connection that was confirmed, when it is given up.
  base::Deadline unreachable_at_ = base::Deadline::never();
  std::optional<Loss> loss_;
  // When the connection by which it is held was last there.
  base::BootClock::time_point seen_at_;
};

/// What the server at `path` says. Throws kUnavailable, kNotPermitted, kTryAgain when there is no
/// answer until `deadline`, kProtocol.
LockStatus ask_lockd(const std::string& path, const base::Deadline& deadline);

}  // namespace fo::lock
