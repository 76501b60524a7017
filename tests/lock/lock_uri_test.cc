#include "lock/lock_uri.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "support/failure.h"

namespace fo::lock {
namespace {

using UriKind = LockUri::Kind;
using std::chrono::seconds;

TEST(LockUri, NamesAFile) {
  EXPECT_EQ(parse_lock_uri("flock:/shared/failover.lock").path, "/shared/failover.lock");
  EXPECT_EQ(parse_lock_uri("flock:/l").kind, UriKind::kFlock);
  EXPECT_EQ(parse_lock_uri("/shared/a:b").path, "/shared/a:b");
  EXPECT_EQ(parse_lock_uri("/shared/a:b").kind, UriKind::kFlock);
  EXPECT_EQ(parse_lock_uri("flock:/shared/a b?c=d").path, "/shared/a b?c=d");
}

TEST(LockUri, NamesAServer) {
  EXPECT_EQ(parse_lock_uri("unix:/run/lock.sock").path, "/run/lock.sock");
  EXPECT_EQ(parse_lock_uri("unix:/run/lock.sock").kind, UriKind::kLockd);
}

TEST(LockUri, NamesAServerBehindAPort) {
  const LockUri uri = parse_lock_uri("tcp:lock.example:7000?ca=/ca&cert=/cert&key=/key");
  EXPECT_EQ(uri.kind, UriKind::kTcp);
  EXPECT_EQ(uri.path, "tcp:lock.example:7000");
  EXPECT_EQ(uri.network.servers, std::vector<std::string>{"lock.example:7000"});
  EXPECT_EQ(uri.network.tls, (net::TlsFiles{"/ca", "/cert", "/key"}));
  EXPECT_EQ(parse_lock_uri("tcp:[::1]:7000").network.servers,
            std::vector<std::string>{"[::1]:7000"});
}

TEST(LockUri, NamesAKeyInEtcd) {
  const LockUri uri = parse_lock_uri(
      "etcd:https://a:2379,b:2379,[fd00::1]:1/locks/engine?ttl=5s&ca=/ca&user=me&password-file=/p");
  EXPECT_EQ(uri.kind, UriKind::kEtcd);
  EXPECT_EQ(uri.path, "etcd:https://a:2379,b:2379,[fd00::1]:1/locks/engine");
  EXPECT_EQ(uri.network.servers,
            (std::vector<std::string>{"https://a:2379", "https://b:2379", "https://[fd00::1]:1"}));
  EXPECT_EQ(uri.network.key, "locks/engine");
  EXPECT_EQ(uri.network.ttl, seconds(5));
  EXPECT_EQ(uri.network.tls.ca, "/ca");
  EXPECT_EQ(uri.network.user, "me");
  EXPECT_EQ(uri.network.password_file, "/p");
  EXPECT_EQ(parse_lock_uri("etcd:http://127.0.0.1:1/k").network.ttl, std::nullopt);
}

TEST(LockUri, NamesALease) {
  const LockUri uri = parse_lock_uri(
      "k8s:team-a/pair.0?duration=30s&api=https://kube:6443/&ca=/ca&token-file=/token");
  EXPECT_EQ(uri.kind, UriKind::kKube);
  EXPECT_EQ(uri.path, "k8s:team-a/pair.0");
  EXPECT_EQ(uri.network.name_space, "team-a");
  EXPECT_EQ(uri.network.key, "pair.0");
  EXPECT_EQ(uri.network.ttl, seconds(30));
  EXPECT_EQ(uri.network.servers, std::vector<std::string>{"https://kube:6443"});
  EXPECT_EQ(uri.network.token_file, "/token");
  EXPECT_TRUE(parse_lock_uri("k8s:n/l").network.servers.empty());
}

TEST(LockUri, TheApiServerSaidApartIsForLeasesThatNameNone) {
  const std::vector<std::string> apart{"http://127.0.0.1:1"};
  EXPECT_EQ(parse_lock_uri("k8s:n/l", apart[0]).network.servers, apart);
  EXPECT_EQ(parse_lock_uri("k8s:n/l?api=http://h:2", apart[0]).network.servers,
            std::vector<std::string>{"http://h:2"});
  EXPECT_EQ(parse_lock_uri("tcp:h:3", apart[0]).network.servers, std::vector<std::string>{"h:3"});
  EXPECT_THROW(parse_lock_uri("k8s:n/l", "kube:6443"), base::Error);
}

TEST(LockUri, OnlyFilesAndTheServersBesideThemAreLocal) {
  EXPECT_EQ(parse_local_lock_uri("/l").path, "/l");
  EXPECT_EQ(parse_local_lock_uri("unix:/s").kind, UriKind::kLockd);
  for (const char* text : {"tcp:h:1", "etcd:http://h:1/k", "k8s:n/l"}) {
    EXPECT_FALSE(is_local(parse_lock_uri(text)));
    EXPECT_THROW(parse_local_lock_uri(text), base::Error) << text;
  }
}

TEST(LockUri, SaysWhatItCantRead) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"FLOCK:/l", "unknown kind of lock; supported: flock:/path"},
      {"flock2:/l", "unknown kind of lock"},
      {"", "expected one of flock:/path"},
      {"relative", "expected one of flock:/path"},
      {"flock:", "expected an absolute path"},
      {"flock:relative", "expected an absolute path"},
      {"unix:s", "expected an absolute path"},
      {"/folder/", "the path is a folder"},
      {"flock:/", "the path is a folder"},
      {"tcp:", "expected HOST:PORT"},
      {"tcp:host", "expected HOST:PORT"},
      {"tcp:host:0", "expected HOST:PORT, not 'host:0'"},
      {"tcp:host:65536", "expected HOST:PORT"},
      {"tcp::1", "expected HOST:PORT"},
      {"tcp:u@h:1", "expected HOST:PORT"},
      {"tcp:::1:80", "expected HOST:PORT"},
      {"tcp:1.2.3:80", "expected HOST:PORT"},
      {"tcp:-a:1", "expected HOST:PORT"},
      {"tcp:a..b:1", "expected HOST:PORT"},
      {"tcp:[zz]:1", "expected HOST:PORT"},
      {"tcp:h:1?cert=/c", "cert and key need each other"},
      {"tcp:h:1?cert=/c&key=/k", "TLS needs ca=FILE"},
      {"tcp:h:1?ttl=3s", "unknown parameter 'ttl'; known: ca, cert, key"},
      {"tcp:h:1?ca=/a&ca=/b", "parameter 'ca' is given twice"},
      {"tcp:h:1?ca=", "parameter 'ca' has no value"},
      {"tcp:h:1?ca", "parameter 'ca' has no value"},
      {"tcp:h:1?", "unknown parameter ''"},
      {"tcp:h:1?ca=relative", "ca: expected an absolute path"},
      {"tcp:h :1", "contains blanks, control or non-ASCII characters"},
      {"etcd:http://h:1", "expected a key after the server"},
      {"etcd:http://h:1/", "expected a key after the server"},
      {"etcd:h:1/k", "expected etcd:http://HOST:PORT/KEY"},
      {"etcd:http://h:1,/k", "expected HOST:PORT, not ''"},
      {"etcd:http://h#:1/k", "expected HOST:PORT"},
      {"etcd:http://h:1/k?ttl=0s", "ttl: expected whole seconds from 1s to 1h"},
      {"etcd:http://h:1/k?ttl=1500ms", "ttl: expected whole seconds"},
      {"etcd:http://h:1/k?ttl=2h", "ttl: expected whole seconds"},
      {"etcd:http://h:1/k?ca=/ca", "ca, cert and key are for https"},
      {"etcd:https://h:1/k", "https needs ca=FILE"},
      {"etcd:http://h:1/k?user=me", "user and password-file need each other"},
      {"k8s:lease", "expected k8s:NAMESPACE/LEASE"},
      {"k8s:/lease", "not a namespace"},
      {"k8s:a.b/lease", "not a namespace"},
      {"k8s:n/", "not a Lease's name"},
      {"k8s:n/Lease", "not a Lease's name"},
      {"k8s:n/a/b", "not a Lease's name"},
      {"k8s:n/-a", "not a Lease's name"},
      {"k8s:n/l?api=kube:1", "api: expected https://HOST:PORT"},
      {"k8s:n/l?api=http://kube.1:80", "expected HOST:PORT"},
      {"k8s:n/l?duration=forever", "duration: expected whole seconds"},
  };
  for (const auto& [text, reason] : cases) {
    const auto failure = test::failure_of([&] { parse_lock_uri(text); });
    EXPECT_EQ(failure.status, base::ExitStatus::kUsage) << text;
    EXPECT_NE(failure.message.find(reason), std::string::npos) << failure.message;
  }
}

}  // namespace
}  // namespace fo::lock
