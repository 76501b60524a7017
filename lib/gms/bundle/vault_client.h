// A server's end of its vault (vault.h): hands its layout to the parent, which keeps it over the
// server's death.
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

/// One request at a time. Every call throws Error(kSoftware) when the parent does not answer.
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
  /// What was begun is whole.
  boost::asio::awaitable<Answer> keep();
  /// Returns once nothing is kept: the memory is free when the server lets it go.
  boost::asio::awaitable<void> drop();

 private:
  boost::asio::awaitable<Answer> ask(VaultPacket::Kind kind, std::size_t count,
                                     std::vector<base::UniqueFd> fds);

  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer timer_;
  unsigned asked_ = 0;
};

}  // namespace fo::gms
