#include "fleet/registry/uri.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "support/environment.h"
#include "support/failure.h"

namespace fo::fleet {
namespace {

constexpr char kForms[] =
    "expected dir:PATH, etcd:http://HOST:PORT,.../PREFIX, k8s:NAMESPACE/SELECTOR or static:URL,...";

TEST(RegistryUri, NamesARegistry) {
  for (const char* uri :
       {"dir:/run/fo/registry", "dir:relative", "dir:/", "dir:/trailing///",
        "etcd:http://127.0.0.1:2379/fo", "etcd:https://a:1,b:2/fo?ca=/ca.pem&ttl=3s",
        "k8s:ns/app=llama?api=http://127.0.0.1:1",
        "k8s:ns/kubernetes.io/service-name=a,tier!=b?api=https://a:1&ca=/ca&token-file=/token",
        "static:http://127.0.0.1:8000", "static:http://a:1,https://b:2/path"}) {
    EXPECT_NE(make_registry(uri), nullptr) << uri;
  }
  EXPECT_NE(make_registry("static:http://a:1", "etcd:http://127.0.0.1:2379/fo"), nullptr);
}

TEST(RegistryUri, OthersAreUsageErrors) {
  const auto reason = [](const std::string& uri, const std::string& state = kDefaultRegistry) {
    const auto failure = fo::test::failure_of([&] { make_registry(uri, state); });
    EXPECT_EQ(failure.status, base::ExitStatus::kUsage);
    return failure.message;
  };
  EXPECT_EQ(reason(""), std::string("registry '': ") + kForms);
  EXPECT_EQ(reason("/run/fo"), std::string("registry '/run/fo': ") + kForms);
  EXPECT_EQ(reason("dir:"), "registry 'dir:': missing path");
  EXPECT_TRUE(reason("etcd:").starts_with("registry 'etcd:': "));
  EXPECT_TRUE(reason("etcd:http://a:1/fo?color=red")
                  .starts_with("registry 'etcd:http://a:1/fo?color=red': unknown parameter"));
  EXPECT_EQ(reason("k8s:ns"), "registry 'k8s:ns': expected k8s:NAMESPACE/SELECTOR");
  EXPECT_EQ(reason("k8s:ns/"),
            "registry 'k8s:ns/': expected a label selector, as in k8s:NAMESPACE/app=NAME");
  EXPECT_EQ(reason("k8s:n.s/app=a"), "registry 'k8s:n.s/app=a': not a namespace: 'n.s'");
  EXPECT_TRUE(reason("k8s:ns/app=a?color=red")
                  .starts_with("registry 'k8s:ns/app=a?color=red': unknown parameter 'color'"));
  EXPECT_EQ(reason("k8s:ns/app=a?duration=5s"),
            "registry 'k8s:ns/app=a?duration=5s': 'duration' is a parameter of locks");
  EXPECT_EQ(reason("static:"), "URL '': expected http[s]://HOST:PORT/PATH or unix:SOCKET:/PATH");
  EXPECT_EQ(reason("static:http://a:1", "static:http://b:1"),
            "registry 'static:http://b:1': expected dir:PATH or etcd:http://HOST:PORT,.../PREFIX "
            "for state");
}

TEST(RegistryUri, OfAnEtcdGetsParameters) {
  const EtcdParameters all{"/ca", "/cert", "/key", "me", "/password"};
  EXPECT_EQ(with_parameters("etcd:https://a:1/fo", all),
            "etcd:https://a:1/fo?ca=/ca&cert=/cert&key=/key&user=me&password-file=/password");
  EtcdParameters one;
  EXPECT_EQ(with_parameters("etcd:https://a:1/fo", one), "etcd:https://a:1/fo");
  one.ca = "/ca";
  const std::string uri = with_parameters("etcd:https://a:1/fo?ttl=3s", one);
  EXPECT_EQ(uri, "etcd:https://a:1/fo?ttl=3s&ca=/ca");
  EXPECT_NE(make_registry(uri), nullptr);
  EXPECT_EQ(fo::test::failure_of([&] { make_registry(with_parameters(uri, one)); }).message,
            "registry 'etcd:https://a:1/fo?ttl=3s&ca=/ca&ca=/ca': parameter 'ca' is given twice");
  EXPECT_EQ(with_parameters("dir:/x", all), "dir:/x");
}

TEST(RegistryUri, OfKubernetesNeedsAnApiServer) {
  const fo::test::Environment environment{"KUBERNETES_SERVICE_HOST"};
  EXPECT_EQ(fo::test::status_of([] { make_registry("k8s:ns/app=a"); }), base::ExitStatus::kConfig);
}

}  // namespace
}  // namespace fo::fleet
