#include "fleet/registry/uri.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "support/failure.h"

namespace fo::fleet {
namespace {

TEST(RegistryUri, NamesAFolderOrAnEtcd) {
  for (const char* uri :
       {"dir:/run/fo/registry", "dir:relative", "dir:/", "dir:/trailing///",
        "etcd:http://127.0.0.1:2379/fo", "etcd:https://a:1,b:2/fo?ca=/ca.pem&ttl=3s"}) {
    EXPECT_NE(make_registry(uri), nullptr) << uri;
  }
}

TEST(RegistryUri, OthersAreUsageErrors) {
  const auto reason = [](const std::string& uri) {
    const auto failure = fo::test::failure_of([&] { make_registry(uri); });
    EXPECT_EQ(failure.status, base::ExitStatus::kUsage);
    return failure.message;
  };
  EXPECT_EQ(reason(""), "registry '': expected dir:PATH or etcd:http://HOST:PORT,.../PREFIX");
  EXPECT_EQ(reason("/run/fo"),
            "registry '/run/fo': expected dir:PATH or etcd:http://HOST:PORT,.../PREFIX");
  EXPECT_EQ(reason("dir:"), "registry 'dir:': without a path");
  EXPECT_TRUE(reason("etcd:").starts_with("registry 'etcd:': "));
  EXPECT_TRUE(reason("etcd:http://a:1/fo?color=red")
                  .starts_with("registry 'etcd:http://a:1/fo?color=red': unknown parameter"));
}

}  // namespace
}  // namespace fo::fleet
