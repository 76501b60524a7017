#include "net/networks.h"

#include <gtest/gtest.h>

#include "support/failure.h"

namespace fo::net {
namespace {

bool contains(const std::string& networks, const char* address) {
  return Networks(networks).contains(boost::asio::ip::make_address(address));
}

TEST(Networks, ContainTheirAddresses) {
  EXPECT_TRUE(contains("10.0.0.0/8,fd00::/8", "10.1.2.3"));
  EXPECT_TRUE(contains("10.0.0.0/8,fd00::/8", "fd12::1"));
  EXPECT_TRUE(contains("10.0.0.0/8", "::ffff:10.0.0.1"));
  EXPECT_TRUE(contains("8.8.8.8/32", "8.8.8.8"));
  EXPECT_FALSE(contains("8.8.8.8/32", "8.8.8.9"));
  EXPECT_FALSE(contains("10.0.0.0/8", "fd12::1"));
  EXPECT_FALSE(Networks().contains(boost::asio::ip::make_address("127.0.0.1")));
}

TEST(Networks, NeverContainLinkLocalAddresses) {
  EXPECT_FALSE(contains("0.0.0.0/0,::/0", "169.254.169.254"));
  EXPECT_FALSE(contains("0.0.0.0/0,::/0", "fe80::1"));
  EXPECT_FALSE(contains("0.0.0.0/0,::/0", "::ffff:169.254.169.254"));
}

TEST(Networks, NeverContainMetadataServers) {
  EXPECT_FALSE(contains("100.64.0.0/10", "100.100.100.200"));
  EXPECT_FALSE(contains("100.64.0.0/10", "::ffff:100.100.100.200"));
  EXPECT_TRUE(contains("100.64.0.0/10", "100.100.100.201"));
  EXPECT_FALSE(contains("fc00::/7", "fd00:ec2::254"));
  EXPECT_FALSE(contains("fc00::/7", "fd20:ce::254"));
}

TEST(Networks, OtherTextsAreRefused) {
  for (const char* text : {"", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/8,", "x", "::/129"}) {
    EXPECT_EQ(fo::test::status_of([&] { Networks{text}; }), base::ExitStatus::kUsage) << text;
  }
}

}  // namespace
}  // namespace fo::net
