#include "fleet/registry/uri.h"

#include <string_view>

#include "base/error.h"
#include "fleet/registry/dir_registry.h"
#include "fleet/registry/etcd_registry.h"
#include "lock/lock_uri.h"

namespace fo::fleet {
namespace {

// etcd is named, with its files, as in the URI of a lock.
std::unique_ptr<Registry> make_etcd(const std::string& uri) {
  lock::LockUri parsed;
  try {
    parsed = lock::parse_lock_uri(uri);
  } catch (const base::Error& error) {
    std::string_view reason = error.what();
    constexpr std::string_view kBegin = "read lock URI ";
    if (reason.starts_with(kBegin)) reason.remove_prefix(kBegin.size());
    throw base::Error(error.status(), "registry " + std::string(reason));
  }
  lock::LockUri::Network& from = parsed.network;
  EtcdRegistryConfig config;
  config.uri = parsed.path;
  config.etcd = {from.servers, from.tls, from.user, from.password_file};
  config.prefix = from.key;
  config.ttl = from.ttl.value_or(kDefaultRegistryTtl);
  return make_etcd_registry(std::move(config));
}

}  // namespace

std::unique_ptr<Registry> make_registry(const std::string& uri) {
  constexpr std::string_view kDir = "dir:";
  const auto refuse = [&](const std::string& reason) {
    return base::Error(base::ExitStatus::kUsage, "registry " + base::quoted(uri) + ": " + reason);
  };
  if (uri.starts_with("etcd:")) return make_etcd(uri);
  if (!uri.starts_with(kDir)) {
    throw refuse("expected dir:PATH or etcd:http://HOST:PORT,.../PREFIX");
  }
  std::string path = uri.substr(kDir.size());
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (path.empty()) throw refuse("without a path");
  return make_dir_registry(std::move(path));
}

}  // namespace fo::fleet
