#include "net/address.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "support/failure.h"

namespace fo::net {
namespace {

base::ExitStatus failure(const std::string& url) {
  return fo::test::status_of([&] { parse_url(url); });
}

TEST(Address, TakesNumericHostsAndLocalhost) {
  EXPECT_EQ(parse_address("127.0.0.1:8000").port, 8000);
  EXPECT_EQ(parse_address("localhost:0").host, "127.0.0.1");
  EXPECT_EQ(parse_address("[::1]:65535").host, "::1");
  EXPECT_EQ(parse_address("[::1]:65535").port, 65535);
}

TEST(Address, RefusesNamesAndBrokenPorts) {
  for (const char* text : {"", ":", "8000", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "[::1]",
                           "127.0.0.1:-1", "127.0.0.1:80x", "example.com:80", "::1:80", "[]:80",
                           "[127.0.0.1]:80", ":8000", "127.1:80"}) {
    EXPECT_THROW(parse_address(text), base::Error) << text;
  }
}

TEST(Address, OfAServerMayHaveAName) {
  EXPECT_EQ(to_string(parse_server("gms-lockd.default.svc:7070")), "gms-lockd.default.svc:7070");
  EXPECT_EQ(parse_server("[::1]:7070").host, "::1");
  EXPECT_EQ(parse_server("localhost:1").host, "localhost");
  for (const char* text :
       {"", "host", "host:", "host:0", "host:65536", "-host:1", "::1:1", "1.2.3:1", "a b:1"}) {
    EXPECT_THROW(parse_server(text), base::Error) << text;
  }
}

TEST(Url, SplitsTcpUrls) {
  const Url url = parse_url("http://127.0.0.1:8000/a/b?c=d#e");
  EXPECT_EQ(url.address.host, "127.0.0.1");
  EXPECT_EQ(url.address.port, 8000);
  EXPECT_EQ(url.target, "/a/b?c=d");
  EXPECT_TRUE(url.socket_path.empty());
}

TEST(Url, FillsInPortAndPath) {
  EXPECT_EQ(parse_url("http://localhost").address.port, 80);
  EXPECT_EQ(parse_url("https://localhost").address.port, 443);
  EXPECT_EQ(parse_url("http://localhost").target, "/");
  EXPECT_EQ(parse_url("http://localhost?x=1").target, "/?x=1");
  EXPECT_EQ(parse_url("http://[::1]/x").address.host, "::1");
  EXPECT_EQ(parse_url("http://localhost:1#x").target, "/");
}

TEST(Url, ItsPathIsAPrefixWithoutASlashAtItsEnd) {
  EXPECT_EQ(base_path(parse_url("http://localhost")), "");
  EXPECT_EQ(base_path(parse_url("http://localhost/v/")), "/v");
  EXPECT_EQ(base_path(parse_url("unix:/run/x.sock")), "");
}

TEST(Url, KnowsTls) {
  EXPECT_TRUE(parse_url("https://[::1]:2379/v3").is_tls);
  EXPECT_FALSE(parse_url("http://127.0.0.1/").is_tls);
  EXPECT_FALSE(parse_url("unix:/run/x.sock").is_tls);
}

TEST(Url, TakesNamesAsTheyAre) {
  const std::string label(63, 'a');
  const std::string longest = label + "." + label + "." + label + "." + std::string(61, 'a');
  ASSERT_EQ(longest.size(), 253U);
  for (const std::string& name :
       {std::string("etcd-0"), std::string("kubernetes.default.svc"), std::string("localhost"),
        std::string("0.pool_a.Example.ORG"), std::string("1e3"), longest}) {
    EXPECT_EQ(parse_url("https://" + name + ":1/x").address.host, name);
    EXPECT_EQ(parse_url("http://" + name).address.host, name);
  }
}

TEST(Url, RefusesHostsThatAreNeitherAddressNorName) {
  const std::string label(63, 'a');
  const std::string four = label + "." + label + "." + label + ".";
  for (const std::string& host :
       {std::string("1.2.3"),  std::string("300.1.1.1"),   std::string("1.2.3.4.5"),
        std::string("7"),      std::string("a.1"),         std::string("[1.2.3.4]"),
        std::string("::1"),    std::string("[::1"),        std::string("[::g]"),
        std::string("[::1]x"), std::string("[etcd]"),      std::string("."),
        std::string("a."),     std::string(".a"),          std::string("a..b"),
        std::string("-a"),     std::string("a-.b"),        std::string("a%b"),
        std::string("a*"),     std::string("a@b"),         std::string("a\\b"),
        std::string(64, 'a'),  four + std::string(62, 'a')}) {
    EXPECT_EQ(failure("http://" + host + ":1/"), base::ExitStatus::kUsage) << host;
    EXPECT_EQ(failure("https://" + host + "/"), base::ExitStatus::kUsage) << host;
  }
}

TEST(Url, RefusesPortsThatNoServerHas) {
  for (const char* port : {"0", "00", "65536", "-1", "", "x"}) {
    EXPECT_EQ(failure(std::string("http://127.0.0.1:") + port + "/"), base::ExitStatus::kUsage)
        << port;
  }
}

TEST(Url, SplitsUnixUrls) {
  const Url url = parse_url("unix:/run/x.sock:/health?v=1");
  EXPECT_EQ(url.socket_path, "/run/x.sock");
  EXPECT_EQ(url.target, "/health?v=1");
  EXPECT_EQ(parse_url("unix:x.sock").target, "/");
}

TEST(Url, RefusesWhatIsNoUrlOfOurs) {
  for (const char* text :
       {"", "/x", "http:/x", "https:", "http://", "https:///x", "http://user@localhost/",
        "unix:", "unix:/x:y", "http://localhost:99999/", "ftp://localhost/", "HTTP://localhost/"}) {
    EXPECT_EQ(failure(text), base::ExitStatus::kUsage) << text;
  }
}

TEST(Url, RefusesWhatWouldBreakTheRequestLine) {
  EXPECT_EQ(failure("http://localhost/a b"), base::ExitStatus::kUsage);
  EXPECT_EQ(failure("http://localhost/\r\nX: y"), base::ExitStatus::kUsage);
  EXPECT_EQ(failure("http://localhost/\xc3\xa4"), base::ExitStatus::kUsage);
}

}  // namespace
}  // namespace fo::net
