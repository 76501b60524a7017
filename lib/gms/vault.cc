#include "gms/vault.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <span>
#include <utility>

#include "base/error.h"
#include "os/fd_passing.h"

namespace fo::gms {

using base::UniqueFd;
using Kind = VaultPacket::Kind;

Vault::~Vault() { close(); }

void Vault::close() {
  clear(kept_);
  clear(half_);
  socket_.reset();
}

UniqueFd Vault::open() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    base::throw_errno(errno, "create a pair of sockets");
  }
  socket_.reset(ends[0]);
  return UniqueFd(ends[1]);
}

void Vault::clear(std::optional<Deposit>& deposit) {
  if (deposit) room_.used -= deposit->count + 1;
  deposit.reset();
}

void Vault::serve() {
  bool is_sane = true;
  while (is_sane) {
    VaultPacket packet;
    std::vector<UniqueFd> fds;
    const std::ptrdiff_t got =
        os::receive_with_fds(socket_.get(), std::as_writable_bytes(std::span(&packet, 1)), fds);
    if (got == -EAGAIN) return;
    // No room for all the descriptors: the limit is lower than it was said to be.
    if (got == -EMSGSIZE) fds.clear();
    if (got != static_cast<std::ptrdiff_t>(sizeof packet) && got != -EMSGSIZE) break;
    const VaultPacket answered =
        got == -EMSGSIZE ? VaultPacket{Kind::kRefused, 0} : answer(packet, std::move(fds), is_sane);
    if (answered.kind == Kind::kRefused) clear(half_);
    // A server that is gone by now hears nothing, but what it has sent counts. One that reads no
    // answers gets no more.
    const std::ptrdiff_t sent =
        os::send_with_fds(socket_.get(), std::as_bytes(std::span(&answered, 1)), {});
    if (sent < 0 && sent != -EPIPE && sent != -ECONNRESET) break;
  }
  clear(half_);
  socket_.reset();
}

VaultPacket Vault::answer(const VaultPacket& packet, std::vector<UniqueFd> fds, bool& is_sane) {
  switch (packet.kind) {
    case Kind::kBegin: {
      clear(half_);
      const std::size_t left = room_.limit > room_.used ? room_.limit - room_.used : 0;
      if (fds.size() != 1) break;
      if (packet.count >= left) return {Kind::kRefused, left == 0 ? 0 : left - 1};
      half_.emplace(Deposit{std::move(fds.front()), packet.count, {}});
      room_.used += packet.count + 1;
      return {};
    }
    case Kind::kAdd:
      if (!half_ || half_->memory.size() + fds.size() > half_->count) break;
      for (UniqueFd& fd : fds) half_->memory.push_back(std::move(fd));
      return {};
    case Kind::kKeep:
      if (!half_ || half_->memory.size() != half_->count) break;
      clear(kept_);
      kept_ = std::exchange(half_, std::nullopt);
      return {};
    case Kind::kDrop:
      clear(half_);
      clear(kept_);
      return {};
    case Kind::kDone:
    case Kind::kRefused:
      break;
  }
  is_sane = false;
  return {Kind::kRefused, 0};
}

}  // namespace fo::gms
