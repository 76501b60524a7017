#include "http/address.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace fo::http {
namespace {

base::ExitStatus failure(const std::string& url) {
  try {
    parse_url(url);
  } catch (const base::Error& error) {
    return error.status();
  }
  return base::ExitStatus::kOk;
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

TEST(Url, SplitsTcpUrls) {
  const Url url = parse_url("http://127.0.0.1:8000/a/b?c=d#e");
  EXPECT_EQ(url.address.host, "127.0.0.1");
  EXPECT_EQ(url.address.port, 8000);
  EXPECT_EQ(url.target, "/a/b?c=d");
  EXPECT_TRUE(url.socket_path.empty());
}

TEST(Url, FillsInPortAndPath) {
  EXPECT_EQ(parse_url("http://localhost").address.port, 80);
  EXPECT_EQ(parse_url("http://localhost").target, "/");
  EXPECT_EQ(parse_url("http://localhost?x=1").target, "/?x=1");
  EXPECT_EQ(parse_url("http://[::1]/x").address.host, "::1");
  EXPECT_EQ(parse_url("http://localhost:1#x").target, "/");
}

TEST(Url, SplitsUnixUrls) {
  const Url url = parse_url("unix:/run/x.sock:/health?v=1");
  EXPECT_EQ(url.socket_path, "/run/x.sock");
  EXPECT_EQ(url.target, "/health?v=1");
  EXPECT_EQ(parse_url("unix:x.sock").target, "/");
}

TEST(Url, RefusesWhatIsNoUrlOfOurs) {
  for (const char* text :
       {"", "/x", "https://localhost/", "http://", "http://user@localhost/", "http://host.name/",
        "unix:", "unix:/x:y", "http://localhost:99999/", "ftp://localhost/"}) {
    EXPECT_EQ(failure(text), base::ExitStatus::kUsage) << text;
  }
}

TEST(Url, RefusesWhatWouldBreakTheRequestLine) {
  EXPECT_EQ(failure("http://localhost/a b"), base::ExitStatus::kUsage);
  EXPECT_EQ(failure("http://localhost/\r\nX: y"), base::ExitStatus::kUsage);
  EXPECT_EQ(failure("http://localhost/\xc3\xa4"), base::ExitStatus::kUsage);
}

}  // namespace
}  // namespace fo::http
