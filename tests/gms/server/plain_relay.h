// A server without our extensions, like Dynamo's: a thread between clients and a gms-serve that
// removes them from the handshake response and counts requests.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gms/protocol/protocol.h"
#include "os/socket/fd_passing.h"
#include "os/socket/unix_socket.h"

namespace fo::gms {

class PlainRelay {
 public:
  enum class Offer { kNothing, kEverything };

  /// Listens at `path`; every client gets its own connection to the server at `server`.
  PlainRelay(const std::string& path, std::string server, Offer offer = Offer::kNothing)
      : server_(std::move(server)),
        offer_(offer),
        listener_(os::listen_unix(path)),
        stop_(::eventfd(0, EFD_CLOEXEC)),
        thread_([this] { run(); }) {}
  ~PlainRelay() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }
  PlainRelay(const PlainRelay&) = delete;
  PlainRelay& operator=(const PlainRelay&) = delete;

  [[nodiscard]] int requests() const { return requests_; }

 private:
  struct Pair {
    base::UniqueFd client;
    base::UniqueFd server;
  };

  void run() {
    for (;;) {
      std::vector<pollfd> events{{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (const Pair& pair : pairs_) {
        events.push_back({pair.client.get(), POLLIN, 0});
        events.push_back({pair.server.get(), POLLIN, 0});
      }
      if (::poll(events.data(), events.size(), -1) < 0 || events[0].revents != 0) return;
      for (std::size_t i = 0; i < pairs_.size(); ++i) {
        Pair& pair = pairs_[i];
        const bool asks = events[2 + 2 * i].revents != 0;
        const bool answers = events[3 + 2 * i].revents != 0;
        if ((asks && !pass(pair.client, pair.server, false)) ||
            (answers && !pass(pair.server, pair.client, true))) {
          pair = {};
        }
      }
      std::erase_if(pairs_, [](const Pair& pair) { return !pair.client; });
      if (events[1].revents != 0) {
        pairs_.push_back({base::UniqueFd(::accept(listener_.get(), nullptr, nullptr)),
                          os::connect_unix(server_, base::Deadline::never())});
      }
    }
  }

  // Passes one frame with its descriptors. False at the end.
  bool pass(const base::UniqueFd& from, const base::UniqueFd& to, bool is_answer) {
    std::string frame(kPrefixSize, '\0');
    std::vector<base::UniqueFd> fds;
    if (!receive(from, frame.data(), kPrefixSize, fds)) return false;
    frame.resize(kPrefixSize + read_prefix(frame));
    if (!receive(from, frame.data() + kPrefixSize, frame.size() - kPrefixSize, fds)) return false;
    if (!is_answer) ++requests_;
    const std::string_view body = std::string_view(frame).substr(kPrefixSize);
    if (is_answer && offer_ == Offer::kNothing && message_type(body) == HandshakeResponse::kType) {
      auto answer = decode_message<HandshakeResponse>(body);
      answer.extensions.clear();
      frame = encode_frame(answer);
    }
    std::vector<int> numbers;
    for (const base::UniqueFd& fd : fds) numbers.push_back(fd.get());
    std::span<const std::byte> bytes = std::as_bytes(std::span(frame));
    while (!bytes.empty()) {
      const std::ptrdiff_t sent = os::send_with_fds(to.get(), bytes, numbers);
      if (sent < 0) return false;
      numbers.clear();
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
  }

  static bool receive(const base::UniqueFd& from, char* to, std::size_t size,
                      std::vector<base::UniqueFd>& fds) {
    std::span<std::byte> room = std::as_writable_bytes(std::span(to, size));
    while (!room.empty()) {
      const std::ptrdiff_t got = os::receive_with_fds(from.get(), room, fds);
      if (got <= 0) return false;
      room = room.subspan(static_cast<std::size_t>(got));
    }
    return true;
  }

  std::string server_;
  Offer offer_;
  base::UniqueFd listener_;
  base::UniqueFd stop_;
  std::vector<Pair> pairs_;
  std::atomic<int> requests_ = 0;
  std::thread thread_;
};

}  // namespace fo::gms
