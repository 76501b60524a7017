#include "fleet/record/worker_url.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "support/failure.h"

namespace fo::fleet {
namespace {

using base::ExitStatus;

ExitStatus checked(const std::string& url, const std::string& networks = kDefaultWorkers) {
  return fo::test::status_of([&] { static_cast<void>(AllowedWorkers(networks).check(url)); });
}

TEST(WorkerUrl, IsLoopbackOrPrivateByDefault) {
  for (const char* url :
       {"http://127.0.0.1:8001", "https://10.1.2.3:443/v1", "http://172.31.0.1:1",
        "http://192.168.1.1:1", "http://100.64.0.1:1", "http://[::1]:8000", "http://[fd12::1]:80",
        "http://[::ffff:10.0.0.1]:80", "http://localhost:8000", "http://node-1.cluster:8000"}) {
    EXPECT_EQ(checked(url), ExitStatus::kOk) << url;
  }
  for (const char* url :
       {"http://8.8.8.8:80", "http://172.32.0.1:1", "http://169.254.169.254:80",
        "http://[fe80::1]:80", "http://[2001:db8::1]:80", "http://[::ffff:8.8.8.8]:80",
        "http://0.0.0.0:80", "http://user@10.0.0.1:80", "http://user:secret@10.0.0.1:80",
        "ftp://10.0.0.1:80", "unix:/run/worker.sock", "10.0.0.1:80", "", "http://"}) {
    EXPECT_EQ(checked(url), ExitStatus::kUsage) << url;
  }
}

TEST(WorkerUrl, NetworksMayBeNamed) {
  EXPECT_EQ(checked("http://8.8.8.8:80", "8.8.8.8/32"), ExitStatus::kOk);
  EXPECT_EQ(checked("http://8.8.8.9:80", "8.8.8.8/32"), ExitStatus::kUsage);
  EXPECT_EQ(checked("http://8.8.8.9:80", "8.8.8.8/31,10.0.0.0/8"), ExitStatus::kOk);
  EXPECT_EQ(checked("http://[2001:db8::1]:80", "2001:db8::/32"), ExitStatus::kOk);
  EXPECT_EQ(checked("http://1.2.3.4:80", "0.0.0.0/0"), ExitStatus::kOk);
  EXPECT_EQ(checked("http://169.254.169.254:80", "0.0.0.0/0,::/0"), ExitStatus::kUsage);
  EXPECT_EQ(checked("http://[fe80::1]:80", "::/0"), ExitStatus::kUsage);
  for (const char* networks : {"", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/8,", "x", "::/129"}) {
    EXPECT_EQ(checked("http://10.0.0.1:80", networks), ExitStatus::kUsage) << networks;
  }
}

}  // namespace
}  // namespace fo::fleet
