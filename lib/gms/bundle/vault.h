// The parent's copy of one server's sealed or published layout: a descriptor for each allocation,
// which keeps the device memory alive when the server dies, and a file with the layout's record.
// The vault reads neither the record nor the memory.
//
//   server ──► parent, one packet each, answered one by one:
//     begin N (+ the record)   drops an incomplete deposit; refused unless there is room for N
//     add (+ descriptors)      up to 253 of them
//     keep                     completes the deposit, which replaces the previous one
//     drop                     drops the deposit; answered when the memory is free
//   If a server dies before `keep`, the previous deposit stays.
//
// Closing the last descriptor of an allocation takes until the driver has freed it. So serve() does
// not close descriptors that it drops: take_dropped() returns them.
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
  /// kBegin: the number of descriptors that follow. kRefused: the number that there is room for.
  std::uint64_t count = 0;
};

struct Deposit {
  base::UniqueFd record;
  /// The expected number of descriptors in `memory`.
  std::size_t count = 0;
  /// By layout slot.
  std::vector<base::UniqueFd> memory;
};

/// Number of descriptors that all vaults of a process may keep.
struct VaultRoom {
  std::size_t limit = 0;
  std::size_t used = 0;
};

class Vault {
 public:
  /// `room` is shared by the vaults of this process and must outlive them.
  explicit Vault(VaultRoom& room) : room_(room) {}
  ~Vault();
  Vault(const Vault&) = delete;
  Vault& operator=(const Vault&) = delete;

  /// Creates the socket for a new server and returns the server's end. Throws Error(kOsError).
  base::UniqueFd open();
  /// For polling; -1 without a server.
  [[nodiscard]] int fd() const { return socket_.get(); }
  /// Handles what the server has sent, without waiting for more. Closes our end if the server has
  /// ended or sent something invalid, and drops an incomplete deposit. A `drop` is not answered
  /// yet.
  void serve();
  /// The descriptors dropped since the last call, for the caller to close.
  std::vector<base::UniqueFd> take_dropped() { return std::exchange(dropped_, {}); }
  /// The dropped descriptors are closed: answers the pending `drop`, if any.
  void answer_drop();

  /// The deposit for the next server; nullptr for none.
  [[nodiscard]] const Deposit* deposit() const { return kept_ ? &*kept_ : nullptr; }
  /// For a child that inherited the vault: returns the deposit, which leaves the vault.
  std::optional<Deposit> take() { return std::exchange(kept_, std::nullopt); }
  /// Closes the socket and all descriptors of the vault; may wait for the driver.
  void close();

 private:
  /// Takes the descriptors to keep out of `fds`. nullopt: the answer comes later.
  std::optional<VaultPacket> answer(const VaultPacket& packet, std::vector<base::UniqueFd>& fds,
                                    bool& is_sane);
  /// False if the server does not read its answers.
  bool send(const VaultPacket& answer);
  void clear(std::optional<Deposit>& deposit);
  void drop(std::vector<base::UniqueFd>& fds);

  VaultRoom& room_;
  base::UniqueFd socket_;
  std::optional<Deposit> kept_;
  std::optional<Deposit> half_;
  std::vector<base::UniqueFd> dropped_;
  /// A `drop` is not answered yet.
  bool owes_answer_ = false;
};

}  // namespace fo::gms
