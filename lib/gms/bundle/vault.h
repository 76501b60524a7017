// What the parent of gms-serve keeps of one server's sealed or published layout: a descriptor for
// each allocation, which keeps the device's memory alive when the server dies, and a file with the
// layout's record. Knows nothing of what they are; counts them.
//
//   server ──► parent, one packet each, answered one by one:
//     begin N (+ the record)   an earlier half deposit goes; refused unless there is room for N
//     add (+ descriptors)      up to 253 of them
//     keep                     the deposit is whole, and takes the place of the one before
//     drop                     nothing is kept any more; answered when the memory is free
//   A server that dies before `keep` has changed nothing.
//
// Closing the last descriptor of an allocation takes as long as the driver takes to free it. The
// vault never does so itself: what it lets go is taken from it with take_dropped().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace fo::gms {

struct VaultPacket {
  enum class Kind : std::uint32_t { kBegin, kAdd, kKeep, kDrop, kDone, kRefused };
  Kind kind = Kind::kDone;
  /// Of kBegin: how many descriptors will come. Of kRefused: how many more could.
  std::uint64_t count = 0;
};

struct Deposit {
  base::UniqueFd record;
  /// How many there are to be in `memory`.
  std::size_t count = 0;
  /// By layout slot.
  std::vector<base::UniqueFd> memory;
};

/// How many descriptors the vaults of one process may keep together.
struct VaultRoom {
  std::size_t limit = 0;
  std::size_t used = 0;
};

class Vault {
 public:
  /// `room` is shared by the vaults of this process and outlives them.
  explicit Vault(VaultRoom& room) : room_(room) {}
  ~Vault();
  Vault(const Vault&) = delete;
  Vault& operator=(const Vault&) = delete;

  /// Our end is ready for a new server, which gets the other. Throws Error(kOsError).
  base::UniqueFd open();
  /// For polling; -1 when no server is there.
  [[nodiscard]] int fd() const { return socket_.get(); }
  /// Takes what the server has sent, without waiting for more. Closes our end when the server has
  /// ended, or has sent what it must not; a half deposit is gone then. A `drop` is not answered
  /// yet.
  void serve();
  /// The descriptors that were let go since the last call, for the caller to close.
  std::vector<base::UniqueFd> take_dropped() { return std::exchange(dropped_, {}); }
  /// What was taken is closed: answers the `drop` that waits for it, if one does.
  void answer_drop();

  /// What the next server begins with; nullptr for nothing.
  [[nodiscard]] const Deposit* deposit() const { return kept_ ? &*kept_ : nullptr; }
  /// For a child that has inherited the vault: takes the deposit out; closes all that is open.
  std::optional<Deposit> take() { return std::exchange(kept_, std::nullopt); }
  void close();

 private:
  /// Takes what it keeps out of `fds`. nullopt: answered later.
  std::optional<VaultPacket> answer(const VaultPacket& packet, std::vector<base::UniqueFd>& fds,
                                    bool& is_sane);
  /// False when the server reads no answers.
  bool send(const VaultPacket& answer);
  void clear(std::optional<Deposit>& deposit);
  void drop(std::vector<base::UniqueFd>& fds);

  VaultRoom& room_;
  base::UniqueFd socket_;
  std::optional<Deposit> kept_;
  std::optional<Deposit> half_;
  std::vector<base::UniqueFd> dropped_;
  /// A `drop` has not been answered.
  bool owes_answer_ = false;
};

}  // namespace fo::gms
