#include "kube/config.h"

#include <gtest/gtest.h>

#include <string>

#include "support/environment.h"
#include "support/failure.h"
#include "support/temp_dir.h"
#include "support/text_file.h"

namespace fo::kube {
namespace {

using base::ExitStatus;
using test::spill;
using test::status_of;

class KubeConfigTest : public testing::Test {
 protected:
  void in_cluster(const std::string& host, const std::string& port) {
    environment_.set("KUBERNETES_SERVICE_HOST", host);
    environment_.set("KUBERNETES_SERVICE_PORT", port);
  }
  // Creates the files of a pod's service account.
  void create_account() const {
    spill(dir_.path("ca.crt"), "a certificate");
    spill(dir_.path("token"), "a.b.c");
  }
  [[nodiscard]] Config find(Config given = {}) const {
    return find_config(std::move(given), "open lock 'k8s:ns/pair'", "the lock's URI has no api=URL",
                       dir_.path(""));
  }
  [[nodiscard]] ExitStatus refusal(Config given = {}) const {
    return status_of([&] { static_cast<void>(find(std::move(given))); });
  }

  test::Environment environment_{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT",
                                 "KUBERNETES_SERVICE_PORT_HTTPS"};
  test::TempDir dir_;
};

TEST_F(KubeConfigTest, PodFindsItsOwn) {
  in_cluster("10.96.0.1", "443");
  create_account();
  const Config config = find();
  EXPECT_EQ(config.server, "https://10.96.0.1:443");
  EXPECT_EQ(config.tls.ca, dir_.path("ca.crt"));
  EXPECT_EQ(config.token_file, dir_.path("token"));
  environment_.set("KUBERNETES_SERVICE_PORT_HTTPS", "6443");
  EXPECT_EQ(find().server, "https://10.96.0.1:6443");
}

TEST_F(KubeConfigTest, Ipv6AddressesGetBrackets) {
  in_cluster("fd00::1", "443");
  create_account();
  EXPECT_EQ(find().server, "https://[fd00::1]:443");
}

TEST_F(KubeConfigTest, UriHasTheLastWord) {
  in_cluster("10.96.0.1", "443");
  create_account();
  const Config config =
      find({"https://api.example:6443", {"/own/ca", "/own/cert", "/own/key"}, "/own/t"});
  EXPECT_EQ(config.server, "https://api.example:6443");
  EXPECT_EQ(config.tls, (net::TlsFiles{"/own/ca", "/own/cert", "/own/key"}));
  EXPECT_EQ(config.token_file, "/own/t");
  EXPECT_EQ(find({"https://api.example:6443", {}, ""}).tls.ca, dir_.path("ca.crt"));
  // The certificate is the identity.
  EXPECT_EQ(find({"https://a:1", {"", "/own/cert", "/own/key"}, ""}).token_file, "");
}

TEST_F(KubeConfigTest, NowhereToGoIsSaidWithBothWays) {
  const auto failure = test::failure_of([&] { return find(); });
  EXPECT_EQ(failure.status, ExitStatus::kConfig);
  EXPECT_EQ(failure.message,
            "open lock 'k8s:ns/pair': no API server: the lock's URI has no api=URL, and "
            "without KUBERNETES_SERVICE_HOST this is not a pod");
}

TEST_F(KubeConfigTest, TlsWantsAnAuthority) {
  EXPECT_EQ(refusal({"https://api.example:6443", {}, ""}), ExitStatus::kConfig);
  in_cluster("10.96.0.1", "443");
  EXPECT_EQ(refusal(), ExitStatus::kConfig);
  EXPECT_EQ(refusal({"https://a:1", {"/own/ca", "", ""}, ""}), ExitStatus::kOk);
}

TEST_F(KubeConfigTest, BrokenEnvironmentIsRefused) {
  create_account();
  for (const char* port : {"", "0", "65536", "x", "443/"}) {
    in_cluster("10.96.0.1", port);
    EXPECT_EQ(refusal(), ExitStatus::kConfig) << port;
  }
  for (const char* host : {"a b", "a/b", "u@h", "a\nb", "[::1]", "a?b"}) {
    in_cluster(host, "443");
    EXPECT_EQ(refusal(), ExitStatus::kConfig) << host;
  }
}

TEST_F(KubeConfigTest, TokenGoesToLoopbackOrOverTlsOnly) {
  create_account();
  for (const char* own : {"127.0.0.1:1", "127.1.2.3:1", "localhost:1", "[::1]:1"}) {
    EXPECT_EQ(find({std::string("http://") + own, {}, ""}).token_file, dir_.path("token")) << own;
  }
  for (const char* other : {"10.0.0.1:1", "127.0.0.1.example:1", "localhost.example:1",
                            "[fd00::1]:1", "api.example:1", "127.a:1"}) {
    EXPECT_EQ(find({std::string("http://") + other, {}, ""}).token_file, "") << other;
    EXPECT_EQ(refusal({std::string("http://") + other, {}, "/t"}), ExitStatus::kConfig) << other;
  }
}

TEST_F(KubeConfigTest, TokenIsOneWord) {
  const std::string path = dir_.path("token");
  EXPECT_EQ(status_of([&] { read_token(path); }), ExitStatus::kNoInput);
  spill(path, "a.b-c_d\r\n\n");
  EXPECT_EQ(read_token(path), "a.b-c_d");
  for (const std::string& bad :
       {std::string(), std::string("\n"), std::string("a b"), std::string("a\nX: y"),
        std::string("a\0b", 3), std::string("\xc3\xa4")}) {
    spill(path, bad);
    EXPECT_EQ(status_of([&] { read_token(path); }), ExitStatus::kConfig) << bad;
  }
  spill(path, std::string(100000, 'x'));
  EXPECT_EQ(status_of([&] { read_token(path); }), ExitStatus::kBadData);
}

}  // namespace
}  // namespace fo::kube
