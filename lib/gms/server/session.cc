#include "gms/server/session.h"

#include <boost/asio/this_coro.hpp>

#include "loop/spawn.h"

namespace fo::gms {
namespace {

using boost::asio::awaitable;

awaitable<void> notify_at_hangup(SessionPtr session) {
  co_await session->connection.watch_hangup();
  session->changed.notify();
}

}  // namespace

awaitable<void> wait_for_change(SessionPtr session, base::Deadline deadline) {
  loop::spawn(co_await boost::asio::this_coro::executor, notify_at_hangup(session));
  // The watch may have ended before this wait begins.
  if (session->connection.is_alive()) co_await session->changed.wait(deadline);
  co_await session->connection.stop_watching();
}

}  // namespace fo::gms
