// A failover lock of a local server, gms-lockd. It is held by a connection and by a pipe (the
// lifeline) whose write end the holder's process tree inherits. After a connection is lost, it
// reconnects: the server returns the lock to a holder that reconnects in time.
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

/// A holder counts an unreachable server as lost this long after the server's reconnect window. A
/// waiter that has reached its server waits for it without limit.
inline constexpr base::Duration kReconnectMargin = std::chrono::seconds(2);

class LockdLock final : public FailoverLock {
 public:
  /// Does not connect yet. Throws kConfig for the id, kUsage for a path that is too long.
  LockdLock(std::string path, std::string id, base::Duration first_contact = kFirstContact);

  /// Throws kUnavailable if the server was not reached within `first_contact`, kNotPermitted,
  /// kConfig, kProtocol.
  Result acquire(const base::Deadline& deadline, int interrupt_fd = -1,
                 const os::Reminder& reminder = {}) override;

  [[nodiscard]] Watch watch() override;
  /// Lost if the server reports that the grant has ended (kTryAgain; another process may be
  /// active), or stays unreachable for too long (kProtocol).
  std::optional<Loss> check() override;
  [[nodiscard]] bool is_confirmed() const override;
  /// The lifeline stays for the next grant.
  void release() override;
  /// The lifeline's write end. Nothing must be written to it.
  [[nodiscard]] std::vector<int> fds() const override { return {lifeline_writer_.get()}; }

 private:
  // Connects and requests the lock. False if the server is unreachable now.
  bool connect();
  // Creates a new pipe under the same number, which ends the old one.
  void renew_lifeline();
  Result abandon(os::LockWait outcome);
  // The next answer, if one has arrived. At the end of the connection, closes ours.
  std::optional<LockdAnswer> take_answer();
  // A grant or a refusal, if one has arrived.
  std::optional<LockdAnswer> take_verdict();
  std::optional<Loss> check_connection();
  // The server has granted the lock to another process since it was last confirmed.
  [[nodiscard]] Loss taken(base::ExitStatus status, std::string reason) const;
  // It is unknown whether another process has the lock.
  [[nodiscard]] Loss out_of_reach(std::string reason) const;

  base::Duration first_contact_;
  base::UniqueFd lifeline_writer_;
  base::UniqueFd lifeline_reader_;
  base::UniqueFd socket_;
  net::LineBuffer lines_{kMaxAnswerBytes};
  // The generation of the last grant, which is claimed after a reconnect.
  std::optional<std::uint64_t> generation_;
  std::chrono::milliseconds window_{};
  bool reached_ = false;
  // Why the last attempt to reach the server failed.
  std::string error_text_;
  // While the lock is held without a confirmed connection: when it counts as lost.
  base::Deadline unreachable_at_ = base::Deadline::never();
  std::optional<Loss> loss_;
  // When the holding connection last existed.
  base::BootClock::time_point seen_at_;
};

/// The answer of the server at `path`. Throws kUnavailable, kNotPermitted, kTryAgain without an
/// answer until `deadline`, kProtocol.
LockStatus query_lockd(const std::string& path, const base::Deadline& deadline);

}  // namespace fo::lock
