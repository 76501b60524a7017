// Both ends of a connection in gms-lockd's protocol, with messages that the test chooses.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/unique_fd.h"
#include "lock/lockd/lockd_protocol.h"
#include "net/line_buffer.h"
#include "os/socket/fd_passing.h"
#include "support/await.h"
#include "support/soon.h"

namespace fo::test {

/// Receives lines, sends bytes, with descriptors.
class Wire {
 public:
  Wire(base::UniqueFd socket, std::size_t max_line_bytes)
      : socket_(std::move(socket)), lines_(max_line_bytes) {}
  Wire(Wire&&) = default;
  Wire& operator=(Wire&&) = default;
  virtual ~Wire() = default;

  /// False if the peer has closed the connection.
  bool send(std::string_view bytes, const std::vector<int>& fds = {}) {
    const auto sent = os::send_with_fds(socket_.get(), std::as_bytes(std::span(bytes)), fds);
    return sent == static_cast<std::ptrdiff_t>(bytes.size());
  }
  /// nullopt at the end of the connection. `idle` is called after each 100 ms without bytes.
  std::optional<std::string> read_line(const std::function<void()>& idle = {}) {
    const base::Deadline deadline = soon();
    for (;;) {
      if (auto line = lines_.take_line()) return line;
      pollfd ready{socket_.get(), POLLIN, 0};
      if (::poll(&ready, 1, 100) != 1) {
        if (deadline.expired()) throw std::runtime_error("no line in time");
        if (idle) idle();
        continue;
      }
      std::array<char, 4096> bytes{};
      const auto got =
          os::receive_with_fds(socket_.get(), std::as_writable_bytes(std::span(bytes)), fds_);
      if (got <= 0) return std::nullopt;
      lines_.append({bytes.data(), static_cast<std::size_t>(got)});
    }
  }
  /// Whether there is nothing to read, and the connection is open.
  [[nodiscard]] bool is_quiet() const {
    pollfd ready{socket_.get(), POLLIN, 0};
    return lines_.empty() && ::poll(&ready, 1, 0) == 0;
  }
  void close() { socket_.reset(); }
  [[nodiscard]] int fd() const { return socket_.get(); }
  /// All received descriptors.
  [[nodiscard]] const std::vector<base::UniqueFd>& fds() const { return fds_; }

 private:
  base::UniqueFd socket_;
  net::LineBuffer lines_;
  std::vector<base::UniqueFd> fds_;
};

/// "waiting for a", "granted 3", "refused 75", "status".
inline std::string word_of(const lock::LockdAnswer& answer) {
  if (const auto* waiting = std::get_if<lock::WaitingAnswer>(&answer)) {
    return "waiting for " + waiting->holder.value_or("nobody");
  }
  if (const auto* granted = std::get_if<lock::GrantedAnswer>(&answer)) {
    return "granted " + std::to_string(granted->generation);
  }
  if (const auto* refused = std::get_if<lock::RefusedAnswer>(&answer)) {
    return "refused " + std::to_string(to_int(refused->status));
  }
  return "status";
}

class LockdClient : public Wire {
 public:
  explicit LockdClient(base::UniqueFd socket) : Wire(std::move(socket), lock::kMaxAnswerBytes) {}

  void ask(const lock::LockdRequest& request, const std::vector<int>& fds = {}) {
    EXPECT_TRUE(send(lock::encode_request(request), fds));
  }
  /// The next answer; nullopt if the server closed the connection.
  virtual std::optional<lock::LockdAnswer> receive() {
    const auto line = read_line();
    return line ? std::optional(lock::decode_answer(*line)) : std::nullopt;
  }
  /// The next answer as a word; "" if the connection was closed.
  std::string hear_word() {
    const auto answer = receive();
    return answer ? word_of(*answer) : "";
  }
  /// The next word that is not "waiting …".
  std::string read_verdict() {
    std::string word;
    while ((word = hear_word()).starts_with("waiting")) {
    }
    return word;
  }
};

/// The server's end.
class LockdPeer : public Wire {
 public:
  explicit LockdPeer(base::UniqueFd socket) : Wire(std::move(socket), lock::kMaxRequestBytes) {}
  /// Accepts the next client of `listener`.
  static LockdPeer accept(int listener) {
    pollfd ready{listener, POLLIN, 0};
    EXPECT_EQ(::poll(&ready, 1, soon().poll_timeout()), 1);
    return LockdPeer(base::UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)));
  }

  lock::LockdRequest read_any() {
    const auto line = read_line();
    if (!line) throw std::runtime_error("the client has closed the connection");
    return lock::decode_request(*line);
  }
  template <typename Request = lock::AcquireRequest>
  Request read() {
    return std::get<Request>(read_any());
  }
  void say(const std::string& bytes) { EXPECT_TRUE(send(bytes)); }
  void say(const lock::LockdAnswer& answer) { say(lock::encode_answer(answer)); }
  /// Whether no process has the writing end of the first lifeline any more; waits for that.
  bool lifeline_ends() {
    pollfd end{fds().at(0).get(), POLLIN, 0};
    return ::poll(&end, 1, base::Deadline::after(kLong).poll_timeout()) == 1 &&
           (end.revents & POLLHUP) != 0;
  }
};

}  // namespace fo::test
