// Networks of IP addresses that a program may connect to. Pure.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/network_v4.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <string>
#include <vector>

namespace fo::net {

class Networks {
 public:
  /// No network.
  Networks() = default;
  /// Networks separated by commas: "10.0.0.0/8,fd00::/8". Throws kUsage: "'text': reason".
  explicit Networks(const std::string& text);

  /// True for an address in one of the networks. Link-local addresses never are, and neither are
  /// the other addresses at which cloud providers serve a machine's credentials.
  [[nodiscard]] bool contains(const boost::asio::ip::address& address) const;

 private:
  std::vector<boost::asio::ip::network_v4> v4_;
  std::vector<boost::asio::ip::network_v6> v6_;
};

}  // namespace fo::net
