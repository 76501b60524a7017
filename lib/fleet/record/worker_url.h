// Limits the workers that a router connects to. Without a limit, any process that can write a
// record could make a router send requests to any address. Pure.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <memory>
#include <string>

#include "net/address.h"
#include "net/networks.h"

namespace fo::fleet {

/// Loopback and private addresses.
inline constexpr char kDefaultWorkers[] =
    "127.0.0.0/8,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,100.64.0.0/10,::1/128,fc00::/7";

/// All addresses but link-local ones.
inline constexpr char kAnyNetwork[] = "0.0.0.0/0,::/0";

class AllowedWorkers {
 public:
  /// `networks` has the form that net::Networks reads.
  explicit AllowedWorkers(const std::string& networks)
      : networks_(std::make_shared<const net::Networks>(networks)) {}

  /// True for an address in one of the networks.
  [[nodiscard]] bool contains(const boost::asio::ip::address& address) const {
    return networks_->contains(address);
  }

  /// The parsed URL of a worker, http or https over TCP. A name is accepted, so who connects must
  /// give networks() to http::Origin, which checks the name's addresses. Throws kUsage:
  /// "URL 'text': reason".
  [[nodiscard]] net::Url check(const std::string& url) const;

  [[nodiscard]] const std::shared_ptr<const net::Networks>& networks() const { return networks_; }

 private:
  std::shared_ptr<const net::Networks> networks_;
};

}  // namespace fo::fleet
