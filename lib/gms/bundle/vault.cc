#include "gms/bundle/vault.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <span>
#include <utility>

#include "base/error.h"
#include "os/socket/fd_passing.h"

namespace fo::gms {

using base::UniqueFd;
using Kind = VaultPacket::Kind;

Vault::~Vault() { close(); }

void Vault::close() {
  clear(kept_);
  clear(half_);
  dropped_.clear();
  socket_.reset();
}

UniqueFd Vault::open() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    base::throw_errno(errno, "create a socket pair");
  }
  socket_.reset(ends[0]);
  owes_answer_ = false;
  return UniqueFd(ends[1]);
}

void Vault::drop(std::vector<UniqueFd>& fds) {
  for (UniqueFd& fd : fds) dropped_.push_back(std::move(fd));
  fds.clear();
}

void Vault::clear(std::optional<Deposit>& deposit) {
  if (!deposit) return;
  room_.used -= deposit->count + 1;
  drop(deposit->memory);
  deposit.reset();
}

bool Vault::send(const VaultPacket& answer) {
  const std::ptrdiff_t sent =
      os::send_with_fds(socket_.get(), std::as_bytes(std::span(&answer, 1)), {});
  // A server that has ended gets no answer, but the packets that it has sent count.
  return sent >= 0 || sent == -EPIPE || sent == -ECONNRESET;
}

void Vault::answer_drop() {
  if (!std::exchange(owes_answer_, false) || !socket_) return;
  static_cast<void>(send({}));
}

void Vault::serve() {
  bool is_sane = true;
  while (is_sane) {
    VaultPacket packet;
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
    std::optional<VaultPacket> answered = VaultPacket{Kind::kRefused, 0};
    if (is_packet) answered = answer(packet, fds, is_sane);
    drop(fds);
    if (answered && answered->kind == Kind::kRefused) clear(half_);
    // A server that does not read its answers gets no more.
    if (answered && !send(*answered)) break;
  }
  clear(half_);
  socket_.reset();
}

std::optional<VaultPacket> Vault::answer(const VaultPacket& packet, std::vector<UniqueFd>& fds,
                                         bool& is_sane) {
  switch (packet.kind) {
    case Kind::kBegin: {
      clear(half_);
      const std::size_t left = room_.limit > room_.used ? room_.limit - room_.used : 0;
      if (fds.size() != 1) break;
      if (packet.count >= left) return VaultPacket{Kind::kRefused, left == 0 ? 0 : left - 1};
      half_.emplace(Deposit{std::move(fds.front()), packet.count, {}});
      fds.clear();
      room_.used += packet.count + 1;
      return VaultPacket{};
    }
    case Kind::kAdd:
      if (!half_ || half_->memory.size() + fds.size() > half_->count) break;
      for (UniqueFd& fd : fds) half_->memory.push_back(std::move(fd));
      fds.clear();
      return VaultPacket{};
    case Kind::kKeep:
      if (!half_ || half_->memory.size() != half_->count) break;
      clear(kept_);
      kept_ = std::exchange(half_, std::nullopt);
      return VaultPacket{};
    case Kind::kDrop:
      clear(half_);
      clear(kept_);
      owes_answer_ = true;
      return std::nullopt;
    case Kind::kDone:
    case Kind::kRefused:
      break;
  }
  is_sane = false;
  return VaultPacket{Kind::kRefused, 0};
}

}  // namespace fo::gms
