// The clients of the program route_proxies: requests for completions, one at a time on a kept
// connection.
#pragma once

#include <algorithm>
#include <array>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "http/connection.h"
#include "support/soon.h"

namespace fo::bench {

inline std::string completion(std::size_t tokens, bool is_stream) {
  return R"({"model":"oracle","prompt":"Once upon a time","ignore_eos":true,"max_tokens":)" +
         std::to_string(tokens) + (is_stream ? R"(,"stream":true})" : "}");
}

class Client {
 public:
  /// Sends `headers` with each request.
  explicit Client(std::uint16_t port, http::Fields headers = {}) : headers_(std::move(headers)) {
    origin_.address = {"127.0.0.1", port};
  }

  /// Sends a request, and reads the head of its answer. False if that is an error.
  boost::asio::awaitable<bool> begin(std::string body) {
    text_.clear();
    if (!connection_ || !connection_->is_alive()) {
      http::Origin origin = origin_;
      connection_ = co_await http::Connection::open(std::move(origin), test::soon(), "a client");
    }
    http::RequestHead head;
    head.method = "POST";
    head.target = "/v1/completions";
    head.headers = headers_;
    head.headers.emplace_back("Content-Type", "application/json");
    co_await connection_->send(std::move(head), body, test::soon());
    const http::ResponseHead answer = co_await connection_->read_head(test::soon());
    co_return answer.status == 200;
  }
  /// Reads a piece of the answer. False at its end.
  boost::asio::awaitable<bool> read() {
    std::array<char, 4096> space;
    const std::size_t count = co_await connection_->read_some(space, test::soon());
    text_.append(space.data(), count);
    co_return count > 0;
  }
  /// Reads until the answer has this text; returns the number of bytes before it. Throws
  /// base::Error if the answer ends before that.
  boost::asio::awaitable<std::size_t> read_until(std::string text, std::size_t from = 0) {
    std::size_t at = text_.find(text, from);
    while (at == text_.npos) {
      const std::size_t begin = std::max(from, text_.size() - std::min(text_.size(), text.size()));
      const bool goes_on = co_await read();
      if (!goes_on) {
        throw base::Error(base::ExitStatus::kSoftware, "read a stream: it has ended");
      }
      at = text_.find(text, begin);
    }
    co_return at;
  }
  /// Whether the last answer, as far as it has arrived, has this text.
  [[nodiscard]] bool has_received(std::string_view text) const {
    return text_.find(text) != text_.npos;
  }
  /// Sends a request, and reads its answer. False if it fails.
  boost::asio::awaitable<bool> ask(std::string body) {
    try {
      bool goes_on = co_await begin(std::move(body));
      const bool is_begun = goes_on;
      while (goes_on) goes_on = co_await read();
      if (is_begun && text_.find(R"("finish_reason":"length")") != text_.npos) co_return true;
    } catch (const base::Error&) {
      // The proxy has closed the connection early, or refused it.
    }
    connection_.reset();
    co_return false;
  }
  void close() { connection_.reset(); }

 private:
  http::Origin origin_;
  http::Fields headers_;
  std::unique_ptr<http::Connection> connection_;
  // What has arrived of the answer.
  std::string text_;
};

}  // namespace fo::bench
