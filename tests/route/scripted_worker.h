// A worker that a test writes byte by byte.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>
#include <utility>

#include "base/units.h"
#include "http/scripted_server.h"

namespace fo::test {

/// Answers the router's checks as an engine with the model "oracle", and `adapter` if that is not
/// empty, and runs a script for each other request.
class ScriptedWorker {
 public:
  using Peer = http::test::Peer;
  /// Writes the answer to a request, of which it gets the head and the body. The connection is
  /// closed afterwards.
  using Script = std::function<boost::asio::awaitable<void>(Peer& peer, std::string request)>;

  ScriptedWorker(const boost::asio::any_io_executor& loop, Script script, std::string adapter = "")
      : script_(std::move(script)),
        adapter_(std::move(adapter)),
        server_(loop, [this](Peer& peer, int) { return serve(peer, this); }) {}
  ScriptedWorker(const ScriptedWorker&) = delete;
  ScriptedWorker& operator=(const ScriptedWorker&) = delete;

  /// Answers checks until another request comes, which is returned, or the connection ends.
  static boost::asio::awaitable<std::string> answer_checks(Peer& peer, std::string adapter = "") {
    const std::string more =
        adapter.empty() ? "" : R"(,{"id":")" + adapter + R"(","parent":"oracle"})";
    for (;;) {
      std::string request = co_await peer.read_head();
      if (request.starts_with("GET /health ")) {
        co_await peer.write(answer(""));
      } else if (request.starts_with("GET /v1/models ")) {
        co_await peer.write(answer(R"({"data":[{"id":"oracle"})" + more + "]}"));
      } else if (request.starts_with("GET /metrics ")) {
        co_await peer.write("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
      } else {
        const std::string body = co_await peer.read_bytes(length_of(request));
        co_return request + body;
      }
    }
  }

  [[nodiscard]] std::string url() const {
    return "http://127.0.0.1:" + std::to_string(server_.origin().address.port);
  }
  /// Requests that were not checks.
  [[nodiscard]] int requests() const { return requests_; }

 private:
  static std::string answer(const std::string& body) {
    return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  }

  static boost::asio::awaitable<void> serve(Peer& peer, ScriptedWorker* self) {
    std::string request = co_await answer_checks(peer, self->adapter_);
    if (request.empty()) co_return;
    ++self->requests_;
    co_await self->script_(peer, std::move(request));
  }

  static std::size_t length_of(const std::string& head) {
    constexpr std::string_view kName = "\r\nContent-Length: ";
    const std::size_t at = head.find(kName);
    if (at == std::string::npos) return 0;
    const std::size_t begin = at + kName.size();
    return base::parse_uint(head.substr(begin, head.find('\r', begin) - begin)).value_or(0);
  }

  Script script_;
  std::string adapter_;
  int requests_ = 0;
  http::test::ScriptedServer server_;
};

}  // namespace fo::test
