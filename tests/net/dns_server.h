// A name server on the test's loop, which answers as given.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loop/spawn.h"

namespace fo::net::test {

struct DnsQuestion {
  std::string name;
  bool is_ipv6 = false;
  /// The whole packet.
  std::string packet;
  /// The sender of a question over UDP.
  boost::asio::ip::udp::endpoint peer;
};

inline DnsQuestion read_question(std::string packet) {
  DnsQuestion question;
  std::size_t at = 12;
  while (at < packet.size() && packet[at] != 0) {
    const auto size = static_cast<std::size_t>(packet[at]);
    if (!question.name.empty()) question.name += '.';
    question.name += packet.substr(at + 1, size);
    at += size + 1;
  }
  question.is_ipv6 = at + 2 < packet.size() && packet[at + 2] == 28;
  question.packet = std::move(packet);
  return question;
}

/// Returns the bytes of an answer; nullopt for no answer.
using DnsAnswer = std::function<std::optional<std::string>(const DnsQuestion&)>;

/// An answer with these IPv4 addresses, each of four bytes; `code` 3 means "no such name".
inline std::string dns_answer(const DnsQuestion& question,
                              const std::vector<std::string>& addresses, char code = 0) {
  using namespace std::string_literals;
  std::string answer = question.packet.substr(0, 2) + "\x81"s;
  answer += static_cast<char>(0x80 | code);
  answer += "\0\1\0"s + static_cast<char>(addresses.size()) + "\0\0\0\0"s;
  // The question, without the additional records that may follow it.
  answer += question.packet.substr(12, question.name.size() + 2 + 4);
  for (const std::string& address : addresses) {
    answer += "\xc0\x0c\0\1\0\1\0\0\0\0\0\4"s + address;
  }
  return answer;
}

class DnsServer {
 public:
  DnsServer(const boost::asio::any_io_executor& loop, DnsAnswer answer)
      : socket_(loop, boost::asio::ip::udp::endpoint(boost::asio::ip::address_v4::loopback(), 0)),
        answer_(std::move(answer)) {
    loop::spawn(loop, serve());
  }
  DnsServer(const DnsServer&) = delete;
  DnsServer& operator=(const DnsServer&) = delete;

  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port()); }
  [[nodiscard]] std::uint16_t port() const { return socket_.local_endpoint().port(); }
  [[nodiscard]] int questions() const { return questions_; }

 private:
  boost::asio::awaitable<void> serve() {
    boost::system::error_code error;
    for (;;) {
      std::array<char, 1500> buffer{};
      boost::asio::ip::udp::endpoint peer;
      const std::size_t size = co_await socket_.async_receive_from(
          boost::asio::buffer(buffer), peer,
          boost::asio::redirect_error(boost::asio::use_awaitable, error));
      if (error) co_return;
      DnsQuestion question = read_question(std::string(buffer.data(), size));
      question.peer = peer;
      ++questions_;
      if (const auto answer = answer_(question)) {
        socket_.send_to(boost::asio::buffer(*answer), peer, 0, error);
      }
    }
  }

  boost::asio::ip::udp::socket socket_;
  DnsAnswer answer_;
  int questions_ = 0;
};

/// Answers over TCP, one client after the other.
class DnsTcpServer {
 public:
  DnsTcpServer(const boost::asio::any_io_executor& loop, std::uint16_t port, DnsAnswer answer)
      : acceptor_(loop, {boost::asio::ip::address_v4::loopback(), port}),
        answer_(std::move(answer)) {
    loop::spawn(loop, serve());
  }
  DnsTcpServer(const DnsTcpServer&) = delete;
  DnsTcpServer& operator=(const DnsTcpServer&) = delete;

 private:
  boost::asio::awaitable<void> serve() {
    boost::system::error_code error;
    auto result = boost::asio::redirect_error(boost::asio::use_awaitable, error);
    for (;;) {
      boost::asio::ip::tcp::socket socket = co_await acceptor_.async_accept(result);
      if (error) co_return;
      while (!error) {
        std::array<unsigned char, 2> size{};
        co_await boost::asio::async_read(socket, boost::asio::buffer(size), result);
        if (error) break;
        std::string packet(size[0] * 256U + size[1], '\0');
        co_await boost::asio::async_read(socket, boost::asio::buffer(packet), result);
        if (error) break;
        const DnsQuestion question = read_question(std::move(packet));
        const auto answer = answer_(question);
        if (!answer) break;
        std::string bytes{static_cast<char>(answer->size() / 256),
                          static_cast<char>(answer->size() % 256)};
        bytes += *answer;
        co_await boost::asio::async_write(socket, boost::asio::buffer(bytes), result);
      }
    }
  }

  boost::asio::ip::tcp::acceptor acceptor_;
  DnsAnswer answer_;
};

}  // namespace fo::net::test
