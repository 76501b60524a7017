#include "gms/bundle/fd_store_client.h"

#include <poll.h>

#include <cerrno>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "loop/event.h"
#include "os/socket/fd_passing.h"

namespace fo::gms {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using base::UniqueFd;
using boost::asio::awaitable;
using Kind = FdStorePacket::Kind;

namespace {

// The parent itself is fast, but a `drop` is answered only when the driver has freed the memory.
constexpr base::Duration kTimeout = std::chrono::seconds(30);
constexpr base::Duration kDropTimeout = std::chrono::minutes(5);

[[noreturn]] void fail_to_keep(const std::string& reason) {
  throw Error(ExitStatus::kSoftware, "keep a layout with the parent process: " + reason);
}

}  // namespace

awaitable<FdStoreClient::Answer> FdStoreClient::ask(Kind kind, std::size_t count,
                                                    std::vector<UniqueFd> fds) {
  const FdStorePacket packet{kind, count};
  std::vector<int> numbers;
  numbers.reserve(fds.size());
  for (const UniqueFd& fd : fds) numbers.push_back(fd.get());
  const std::ptrdiff_t sent =
      os::send_with_fds(socket_.get(), std::as_bytes(std::span(&packet, 1)), numbers);
  // The kernel limits descriptors in flight per user: others may have used them up.
  if (sent < 0 && !fds.empty()) co_return Answer();
  if (sent < 0) fail_to_keep(std::generic_category().message(static_cast<int>(-sent)));
  fds.clear();
  const Deadline deadline = Deadline::after(kind == Kind::kDrop ? kDropTimeout : kTimeout);
  FdStorePacket answer;
  for (;;) {
    std::vector<UniqueFd> none;
    const std::ptrdiff_t got =
        os::receive_with_fds(socket_.get(), std::as_writable_bytes(std::span(&answer, 1)), none);
    if (got == static_cast<std::ptrdiff_t>(sizeof answer)) break;
    if (got != -EAGAIN) fail_to_keep("it closed the connection");
    if (deadline.expired()) fail_to_keep("no answer in time");
    co_await loop::until_ready(socket_.get(), POLLIN, deadline);
  }
  Answer result;
  result.accepted = answer.kind == Kind::kDone;
  result.room = answer.count;
  co_return result;
}

awaitable<FdStoreClient::Answer> FdStoreClient::begin(UniqueFd record, std::size_t count) {
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(record));
  return ask(Kind::kBegin, count, std::move(fds));
}

awaitable<FdStoreClient::Answer> FdStoreClient::add(std::vector<UniqueFd> fds) {
  return ask(Kind::kAdd, 0, std::move(fds));
}

awaitable<FdStoreClient::Answer> FdStoreClient::keep() { return ask(Kind::kKeep, 0, {}); }

awaitable<void> FdStoreClient::drop() { co_await ask(Kind::kDrop, 0, {}); }

}  // namespace fo::gms
