// The parent's copy of one server's sealed or published layout: a descriptor for each allocation,
// which keeps the device memory alive when the server dies, and a file with the layout's record.
// The store reads neither the record nor the memory.
//
//   server ──► parent, one packet each, answered one by one:
//     begin N (+ the record)   drops an incomplete layout; refused without a budget for N
//     add (+ descriptors)      up to 253 of them
//     keep                     completes the layout, which replaces the previous one
//     drop                     drops the layout; answered when the memory is free
//   If a server dies before `keep`, the previous stored layout stays.
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

struct FdStorePacket {
  enum class Kind : std::uint32_t { kBegin, kAdd, kKeep, kDrop, kDone, kRefused };
  Kind kind = Kind::kDone;
  /// kBegin: the number of descriptors that follow. kRefused: the number that the budget allows.
  std::uint64_t count = 0;
};

struct StoredLayout {
  base::UniqueFd record;
  /// The expected number of descriptors in `memory`.
  std::size_t count = 0;
  /// By layout slot.
  std::vector<base::UniqueFd> memory;
};

/// Number of descriptors that all descriptor stores of a process may keep.
struct FdBudget {
  std::size_t limit = 0;
  std::size_t used = 0;
};

class FdStore {
 public:
  /// `budget` is shared by the descriptor stores of this process and must outlive them.
  explicit FdStore(FdBudget& budget) : budget_(budget) {}
  ~FdStore();
  FdStore(const FdStore&) = delete;
  FdStore& operator=(const FdStore&) = delete;

  /// Creates the socket for a new server and returns the server's end. Throws Error(kOsError).
  base::UniqueFd open();
  /// For polling; -1 without a server.
  [[nodiscard]] int fd() const { return socket_.get(); }
  /// Handles what the server has sent, without waiting for more. Closes our end if the server has
  /// ended or sent something invalid, and drops an incomplete stored layout. A `drop` is not
  /// answered yet.
  void serve();
  /// The descriptors dropped since the last call, for the caller to close.
  std::vector<base::UniqueFd> take_dropped() { return std::exchange(dropped_, {}); }
  /// The dropped descriptors are closed: answers the pending `drop`, if any.
  void answer_drop();

  /// The layout for the next server; nullptr for none.
  [[nodiscard]] const StoredLayout* stored_layout() const { return kept_ ? &*kept_ : nullptr; }
  /// For a child that inherited the store: returns the stored layout, which leaves the store.
  std::optional<StoredLayout> take() { return std::exchange(kept_, std::nullopt); }
  /// Closes the socket and all descriptors of the descriptor store; may wait for the driver.
  void close();

 private:
  /// Takes the descriptors to keep out of `fds`. nullopt: the answer comes later.
  std::optional<FdStorePacket> answer(const FdStorePacket& packet, std::vector<base::UniqueFd>& fds,
                                      bool& is_sane);
  /// False if the server does not read its answers.
  bool send(const FdStorePacket& answer);
  void clear(std::optional<StoredLayout>& stored_layout);
  void drop(std::vector<base::UniqueFd>& fds);

  FdBudget& budget_;
  base::UniqueFd socket_;
  std::optional<StoredLayout> kept_;
  std::optional<StoredLayout> incomplete_;
  std::vector<base::UniqueFd> dropped_;
  /// A `drop` is not answered yet.
  bool owes_answer_ = false;
};

}  // namespace fo::gms
