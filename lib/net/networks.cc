#include "net/networks.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/ascii.h"

namespace fo::net {
namespace {

namespace ip = boost::asio::ip;
using base::Error;
using base::ExitStatus;

constexpr unsigned short kBitsV4 = 32;
constexpr unsigned short kBitsV6 = 128;

// The metadata servers of cloud providers beside link-local ones: Alibaba's, Amazon's and Google's.
bool is_metadata_server(const ip::address& address) {
  static const std::array kServers{ip::make_address("100.100.100.200"),
                                   ip::make_address("fd00:ec2::254"),
                                   ip::make_address("fd20:ce::254")};
  return std::ranges::find(kServers, address) != kServers.end();
}

template <typename Network>
bool covers(const Network& network, const Network& host) {
  return host == network || host.is_subnet_of(network.canonical());
}

}  // namespace

Networks::Networks(const std::string& text) {
  for (const std::string_view part : text::split(text, ',')) {
    const std::string one(part);
    boost::system::error_code error;
    const ip::network_v4 v4 = ip::make_network_v4(one, error);
    if (!error) {
      v4_.push_back(v4);
    } else {
      error.clear();
      const ip::network_v6 v6 = ip::make_network_v6(one, error);
      if (error) {
        throw Error(ExitStatus::kUsage, base::quoted(one) + ": expected a network: 10.0.0.0/8");
      }
      v6_.push_back(v6);
    }
  }
}

bool Networks::contains(const ip::address& address) const {
  if (is_metadata_server(address)) return false;
  if (address.is_v4()) {
    constexpr unsigned kLinkLocal = 0xa9fe;
    if (address.to_v4().to_uint() >> 16 == kLinkLocal) return false;
    const ip::network_v4 host(address.to_v4(), kBitsV4);
    return std::any_of(v4_.begin(), v4_.end(),
                       [&](const ip::network_v4& one) { return covers(one, host); });
  }
  const ip::address_v6 v6 = address.to_v6();
  if (v6.is_v4_mapped()) return contains(ip::make_address_v4(ip::v4_mapped, v6));
  if (v6.is_link_local()) return false;
  const ip::network_v6 host(v6, kBitsV6);
  return std::any_of(v6_.begin(), v6_.end(),
                     [&](const ip::network_v6& one) { return covers(one, host); });
}

}  // namespace fo::net
