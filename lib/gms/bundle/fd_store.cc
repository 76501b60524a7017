#include "gms/bundle/fd_store.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <span>
#include <utility>

#include "base/error.h"
#include "os/socket/fd_passing.h"

namespace fo::gms {

using base::UniqueFd;
using Kind = FdStorePacket::Kind;

FdStore::~FdStore() { close(); }

void FdStore::close() {
  clear(kept_);
  clear(incomplete_);
  dropped_.clear();
  socket_.reset();
}

UniqueFd FdStore::open() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    base::throw_errno(errno, "create a socket pair");
  }
  socket_.reset(ends[0]);
  owes_answer_ = false;
  return UniqueFd(ends[1]);
}

void FdStore::drop(std::vector<UniqueFd>& fds) {
  for (UniqueFd& fd : fds) dropped_.push_back(std::move(fd));
  fds.clear();
}

void FdStore::clear(std::optional<StoredLayout>& stored_layout) {
  if (!stored_layout) return;
  budget_.used -= stored_layout->count + 1;
  drop(stored_layout->memory);
  stored_layout.reset();
}

bool FdStore::send(const FdStorePacket& answer) {
  const std::ptrdiff_t sent =
      os::send_with_fds(socket_.get(), std::as_bytes(std::span(&answer, 1)), {});
  // A server that has ended gets no answer, but the packets that it has sent count.
  return sent >= 0 || sent == -EPIPE || sent == -ECONNRESET;
}

void FdStore::answer_drop() {
  if (!std::exchange(owes_answer_, false) || !socket_) return;
  static_cast<void>(send({}));
}

void FdStore::serve() {
  bool is_sane = true;
  while (is_sane) {
    FdStorePacket packet;
    std::vector<UniqueFd> fds;
    const std::ptrdiff_t got =
        os::receive_with_fds(socket_.get(), std::as_writable_bytes(std::span(&packet, 1)), fds);
    if (got == -EAGAIN) return;
    const bool is_packet = got == static_cast<std::ptrdiff_t>(sizeof packet);
    // One packet at a time: none may come before a `drop` is answered.
    if (owes_answer_ || (!is_packet && got != -EMSGSIZE)) {
      drop(fds);
      break;
    }
    // EMSGSIZE: the kernel dropped descriptors, because this process may open fewer than expected.
    std::optional<FdStorePacket> answered = FdStorePacket{Kind::kRefused, 0};
    if (is_packet) answered = answer(packet, fds, is_sane);
    drop(fds);
    if (answered && answered->kind == Kind::kRefused) clear(incomplete_);
    // A server that does not read its answers gets no more.
    if (answered && !send(*answered)) break;
  }
  clear(incomplete_);
  socket_.reset();
}

std::optional<FdStorePacket> FdStore::answer(const FdStorePacket& packet,
                                             std::vector<UniqueFd>& fds, bool& is_sane) {
  switch (packet.kind) {
    case Kind::kBegin: {
      clear(incomplete_);
      const std::size_t left = budget_.limit > budget_.used ? budget_.limit - budget_.used : 0;
      if (fds.size() != 1) break;
      if (packet.count >= left) return FdStorePacket{Kind::kRefused, left == 0 ? 0 : left - 1};
      incomplete_.emplace(StoredLayout{std::move(fds.front()), packet.count, {}});
      fds.clear();
      budget_.used += packet.count + 1;
      return FdStorePacket{};
    }
    case Kind::kAdd:
      if (!incomplete_ || incomplete_->memory.size() + fds.size() > incomplete_->count) break;
      for (UniqueFd& fd : fds) incomplete_->memory.push_back(std::move(fd));
      fds.clear();
      return FdStorePacket{};
    case Kind::kKeep:
      if (!incomplete_ || incomplete_->memory.size() != incomplete_->count) break;
      clear(kept_);
      kept_ = std::exchange(incomplete_, std::nullopt);
      return FdStorePacket{};
    case Kind::kDrop:
      clear(incomplete_);
      clear(kept_);
      owes_answer_ = true;
      return std::nullopt;
    case Kind::kDone:
    case Kind::kRefused:
      break;
  }
  is_sane = false;
  return FdStorePacket{Kind::kRefused, 0};
}

}  // namespace fo::gms
