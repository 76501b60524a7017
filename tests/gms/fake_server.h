// A server that only sends the answers of a test's script, from a thread.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "gms/protocol/protocol.h"
#include "os/socket/unix_socket.h"

namespace fo::gms {

class FakeServer {
 public:
  /// The answer to each request type; a missing type gets no answer.
  using Script = std::map<std::string, std::string>;

  FakeServer(const std::string& path, Script script)
      : listener_(os::listen_unix(path)),
        stop_(::eventfd(0, EFD_CLOEXEC)),
        script_(std::move(script)),
        thread_([this] { run(); }) {}
  ~FakeServer() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

 private:
  struct Client {
    base::UniqueFd socket;
    std::string received;
  };

  void run() {
    for (;;) {
      std::vector<pollfd> events{{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (const Client& client : clients_) events.push_back({client.socket.get(), POLLIN, 0});
      if (::poll(events.data(), events.size(), -1) < 0 || events[0].revents != 0) return;
      for (std::size_t i = 0; i < clients_.size(); ++i) {
        if (events[i + 2].revents != 0) serve(clients_[i]);
      }
      std::erase_if(clients_, [](const Client& client) { return !client.socket; });
      if (events[1].revents != 0) {
        clients_.push_back({base::UniqueFd(::accept(listener_.get(), nullptr, nullptr)), {}});
      }
    }
  }

  void serve(Client& client) {
    char chunk[4096];
    const ssize_t got = ::recv(client.socket.get(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (got <= 0) return client.socket.reset();
    client.received.append(chunk, static_cast<std::size_t>(got));
    while (client.received.size() >= kPrefixSize) {
      const std::size_t size = kPrefixSize + read_prefix(client.received);
      if (client.received.size() < size) return;
      const auto body = std::string_view(client.received).substr(kPrefixSize, size - kPrefixSize);
      const auto answer = script_.find(message_type(body));
      client.received.erase(0, size);
      if (answer == script_.end()) continue;
      [[maybe_unused]] const ssize_t put =
          ::send(client.socket.get(), answer->second.data(), answer->second.size(), MSG_NOSIGNAL);
    }
  }

  base::UniqueFd listener_;
  base::UniqueFd stop_;
  Script script_;
  std::vector<Client> clients_;
  std::thread thread_;
};

/// A frame of one byte that no msgpack value begins with.
inline std::string garbage() { return {"\0\0\0\1\xc1", 5}; }

}  // namespace fo::gms
