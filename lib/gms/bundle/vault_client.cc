#include "gms/bundle/vault_client.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "loop/adopt.h"
#include "os/fd_passing.h"

namespace fo::gms {

namespace asio = boost::asio;
using asio::awaitable;
using base::Error;
using base::ExitStatus;
using base::UniqueFd;
using Kind = VaultPacket::Kind;

namespace {

// The parent itself is fast, but a `drop` is answered only when the driver has freed the memory.
constexpr base::Duration kTimeout = std::chrono::seconds(30);
constexpr base::Duration kDropTimeout = std::chrono::minutes(5);

[[noreturn]] void fail(const std::string& reason) {
  throw Error(ExitStatus::kSoftware, "keep a layout with the parent process: " + reason);
}

}  // namespace

VaultClient::VaultClient(asio::io_context& io, UniqueFd socket) : socket_(io), timer_(io) {
  loop::adopt(socket_, std::move(socket), "watch the parent process's socket");
}

awaitable<VaultClient::Answer> VaultClient::ask(Kind kind, std::size_t count,
                                                std::vector<UniqueFd> fds) {
  const VaultPacket packet{kind, count};
  std::vector<int> numbers;
  numbers.reserve(fds.size());
  for (const UniqueFd& fd : fds) numbers.push_back(fd.get());
  const std::ptrdiff_t sent =
      os::send_with_fds(socket_.native_handle(), std::as_bytes(std::span(&packet, 1)), numbers);
  // The kernel limits descriptors in flight per user: others may have used them up.
  if (sent < 0 && !fds.empty()) co_return Answer();
  if (sent < 0) fail(std::generic_category().message(static_cast<int>(-sent)));
  fds.clear();
  timer_.expires_after(kind == Kind::kDrop ? kDropTimeout : kTimeout);
  // A queued handler cannot be cancelled, so it checks whether it is outdated.
  timer_.async_wait([this, mine = ++asked_](boost::system::error_code ec) {
    if (!ec && mine == asked_) socket_.cancel();
  });
  VaultPacket answer;
  for (;;) {
    std::vector<UniqueFd> none;
    const std::ptrdiff_t got = os::receive_with_fds(
        socket_.native_handle(), std::as_writable_bytes(std::span(&answer, 1)), none);
    if (got == static_cast<std::ptrdiff_t>(sizeof answer)) break;
    if (got != -EAGAIN) fail("it closed the connection");
    boost::system::error_code ec;
    co_await socket_.async_wait(asio::posix::descriptor_base::wait_read,
                                asio::redirect_error(asio::use_awaitable, ec));
    if (ec) fail("no answer in time");
  }
  ++asked_;
  timer_.cancel();
  Answer result;
  result.accepted = answer.kind == Kind::kDone;
  result.room = answer.count;
  co_return result;
}

awaitable<VaultClient::Answer> VaultClient::begin(UniqueFd record, std::size_t count) {
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(record));
  return ask(Kind::kBegin, count, std::move(fds));
}

awaitable<VaultClient::Answer> VaultClient::add(std::vector<UniqueFd> fds) {
  return ask(Kind::kAdd, 0, std::move(fds));
}

awaitable<VaultClient::Answer> VaultClient::keep() { return ask(Kind::kKeep, 0, {}); }

awaitable<void> VaultClient::drop() { co_await ask(Kind::kDrop, 0, {}); }

}  // namespace fo::gms
