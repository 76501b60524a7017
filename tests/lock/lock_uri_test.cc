#include "lock/lock_uri.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace fo::lock {
namespace {

TEST(LockUri, NamesAFile) {
  EXPECT_EQ(parse_lock_uri("flock:/shared/failover.lock").path, "/shared/failover.lock");
  EXPECT_EQ(parse_lock_uri("flock:/l").kind, LockUri::Kind::kFlock);
  EXPECT_EQ(parse_lock_uri("/shared/a:b").path, "/shared/a:b");
  EXPECT_EQ(parse_lock_uri("/shared/a:b").kind, LockUri::Kind::kFlock);
}

TEST(LockUri, NamesAServer) {
  EXPECT_EQ(parse_lock_uri("unix:/run/lock.sock").path, "/run/lock.sock");
  EXPECT_EQ(parse_lock_uri("unix:/run/lock.sock").kind, LockUri::Kind::kLockd);
}

TEST(LockUri, RefusesWhatThisBuildHasNot) {
  for (const char* text : {"tcp:host:1", "etcd:http://host:1/key",
                           "k8s:namespace/lease", "FLOCK:/l", "flock2:/l"}) {
    try {
      parse_lock_uri(text);
      FAIL() << text;
    } catch (const base::Error& error) {
      EXPECT_EQ(error.status(), base::ExitStatus::kUsage) << text;
      EXPECT_NE(std::string(error.what()).find("supported: flock:/path"), std::string::npos);
    }
  }
}

TEST(LockUri, RefusesWhatIsNoAbsoluteFile) {
  for (const char* text : {"", "flock:", "flock:relative", "unix:", "unix:s", "relative", "/folder/", "flock:/"}) {
    EXPECT_THROW(parse_lock_uri(text), base::Error) << text;
  }
}

}  // namespace
}  // namespace fo::lock
