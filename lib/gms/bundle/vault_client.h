// A server's end of its vault (vault.h): sends its layout to the parent, which keeps it if the
// server dies.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <vector>

#include "base/unique_fd.h"
#include "gms/bundle/vault.h"

namespace fo::gms {

/// One request at a time. Every call throws Error(kSoftware) if the parent does not answer.
class VaultClient {
 public:
  VaultClient(boost::asio::io_context& io, base::UniqueFd socket);

  struct Answer {
    bool accepted = false;
    /// Of what was refused: how many descriptors there is room for.
    std::size_t room = 0;
  };
  /// Begins a deposit of `count` descriptors, of which `record`, a file, tells the rest.
  boost::asio::awaitable<Answer> begin(base::UniqueFd record, std::size_t count);
  /// At most os::kMaxFdsPerMessage.
  boost::asio::awaitable<Answer> add(std::vector<base::UniqueFd> fds);
  /// Completes the deposit.
  boost::asio::awaitable<Answer> keep();
  /// Returns when the parent keeps nothing: the memory is freed when the server releases it.
  boost::asio::awaitable<void> drop();

 private:
  boost::asio::awaitable<Answer> ask(VaultPacket::Kind kind, std::size_t count,
                                     std::vector<base::UniqueFd> fds);

  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer timer_;
  unsigned asked_ = 0;
};

}  // namespace fo::gms
