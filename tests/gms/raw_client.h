// A GMS client that sends arbitrary bytes and receives the answers.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "gms/protocol/protocol.h"
#include "os/file/file.h"
#include "os/socket/fd_passing.h"
#include "os/socket/unix_socket.h"

namespace fo::gms {

class RawClient {
 public:
  explicit RawClient(const std::string& path)
      : socket_(os::connect_unix(path, base::Deadline::after(std::chrono::seconds(20)))) {}

  [[nodiscard]] int fd() const { return socket_.get(); }
  void hang_up() { socket_.reset(); }

  void say(std::string_view bytes) const { os::write_all(fd(), bytes, "say"); }

  /// The body of the next frame, and its descriptors; empty if the server has closed the
  /// connection.
  std::string receive(std::vector<base::UniqueFd>* fds = nullptr) const {
    std::vector<base::UniqueFd> received;
    const std::string prefix = hear_bytes(kPrefixSize, received);
    std::string body;
    if (prefix.size() == kPrefixSize) body = hear_bytes(read_prefix(prefix), received);
    if (fds != nullptr) *fds = std::move(received);
    return body;
  }

  /// All bytes until the server closes the connection.
  std::string hear_all() const {
    std::vector<base::UniqueFd> ignored;
    return hear_bytes(std::string::npos, ignored);
  }

  template <typename Response, typename Request>
  Response ask(const Request& request, std::vector<base::UniqueFd>* fds = nullptr) const {
    say(encode_frame(request));
    return decode_message<Response>(receive(fds));
  }

 private:
  std::string hear_bytes(std::size_t most, std::vector<base::UniqueFd>& fds) const {
    std::string heard;
    std::array<std::byte, 4096> chunk;
    while (heard.size() < most) {
      const auto room = std::span(chunk).first(std::min(chunk.size(), most - heard.size()));
      const std::ptrdiff_t got = os::receive_with_fds(fd(), room, fds);
      if (got <= 0) break;
      heard.append(reinterpret_cast<const char*>(chunk.data()), static_cast<std::size_t>(got));
    }
    return heard;
  }

  base::UniqueFd socket_;
};

}  // namespace fo::gms
