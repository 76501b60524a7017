// A server's end of its descriptor store (fd_store.h): sends its layout to the parent, which keeps
// it if the server dies.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "gms/bundle/fd_store.h"

namespace fo::gms {

/// One request at a time. Every call throws Error(kSoftware) if the parent does not answer.
class FdStoreClient {
 public:
  explicit FdStoreClient(base::UniqueFd socket) : socket_(std::move(socket)) {}

  struct Answer {
    bool accepted = false;
    /// After a refusal: how many descriptors there is room for.
    std::size_t room = 0;
  };
  /// Begins a stored layout of `count` descriptors. `record` is the file with the layout's record.
  boost::asio::awaitable<Answer> begin(base::UniqueFd record, std::size_t count);
  /// At most os::kMaxFdsPerMessage.
  boost::asio::awaitable<Answer> add(std::vector<base::UniqueFd> fds);
  /// Completes the stored layout.
  boost::asio::awaitable<Answer> keep();
  /// Returns when the parent keeps nothing: the memory is freed when the server releases it.
  boost::asio::awaitable<void> drop();

 private:
  boost::asio::awaitable<Answer> ask(FdStorePacket::Kind kind, std::size_t count,
                                     std::vector<base::UniqueFd> fds);

  base::UniqueFd socket_;
};

}  // namespace fo::gms
