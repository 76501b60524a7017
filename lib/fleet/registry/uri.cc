#include "fleet/registry/uri.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "fleet/registry/dir_registry.h"
#include "fleet/registry/etcd_registry.h"
#include "fleet/registry/joined_registry.h"
#include "fleet/registry/kube/kube_reader.h"
#include "fleet/registry/static_reader.h"
#include "lock/lock_uri.h"

namespace fo::fleet {
namespace {

constexpr std::string_view kDir = "dir:";
constexpr std::string_view kEtcd = "etcd:";
constexpr std::string_view kKube = "k8s:";
constexpr std::string_view kStatic = "static:";

[[noreturn]] void refuse_uri(const std::string& uri, const std::string& reason) {
  throw base::Error(base::ExitStatus::kUsage, "registry " + base::quoted(uri) + ": " + reason);
}

// The URI of a registry names servers and their files as the URI of a lock does.
lock::LockUri parse_as_lock(const std::string& uri, const std::string& lock_uri) {
  try {
    return lock::parse_lock_uri(lock_uri);
  } catch (const base::Error& error) {
    const std::size_t begin = ("read lock URI " + base::quoted(lock_uri) + ": ").size();
    refuse_uri(uri, std::string(error.what()).substr(begin));
  }
}

std::unique_ptr<Registry> make_dir(const std::string& uri) {
  std::string path = uri.substr(kDir.size());
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (path.empty()) refuse_uri(uri, "missing path");
  return make_dir_registry(std::move(path));
}

std::unique_ptr<Registry> make_etcd(const std::string& uri) {
  const lock::LockUri parsed = parse_as_lock(uri, uri);
  const lock::LockUri::Network& from = parsed.network;
  EtcdRegistryConfig config;
  config.uri = parsed.path;
  config.etcd = {from.servers, from.tls, from.user, from.password_file};
  config.prefix = from.key;
  config.ttl = from.ttl.value_or(kDefaultRegistryTtl);
  return make_etcd_registry(std::move(config));
}

std::unique_ptr<RecordReader> make_kube(const std::string& uri) {
  KubeReaderConfig config;
  const std::size_t end = std::min(uri.find('?'), uri.size());
  config.uri = uri.substr(0, end);
  const std::size_t slash = config.uri.find('/');
  if (slash == config.uri.npos) refuse_uri(uri, "expected k8s:NAMESPACE/SELECTOR");
  config.selector = config.uri.substr(slash + 1);
  if (config.selector.empty() || !base::is_graphic(config.selector)) {
    refuse_uri(uri, "expected a label selector, as in k8s:NAMESPACE/app=NAME");
  }
  // A lock has the name of a Lease in place of the selector.
  const lock::LockUri parsed =
      parse_as_lock(uri, config.uri.substr(0, slash) + "/workers" + uri.substr(end));
  const lock::LockUri::Network& from = parsed.network;
  if (from.ttl) refuse_uri(uri, "'duration' is a parameter of locks");
  config.name_space = from.name_space;
  if (!from.servers.empty()) config.kube.server = from.servers.front();
  config.kube.tls = from.tls;
  config.kube.token_file = from.token_file;
  config.kube = kube::find_config(std::move(config.kube), "registry " + base::quoted(config.uri),
                                  "its URI has no api=URL");
  return make_kube_reader(std::move(config));
}

// nullptr unless the URI names a registry that can be written: dir: or etcd:.
std::unique_ptr<Registry> make_writable(const std::string& uri) {
  if (uri.starts_with(kDir)) return make_dir(uri);
  if (uri.starts_with(kEtcd)) return make_etcd(uri);
  return nullptr;
}

}  // namespace

std::unique_ptr<Registry> make_registry(const std::string& uri, const std::string& state) {
  if (std::unique_ptr<Registry> registry = make_writable(uri)) return registry;
  std::unique_ptr<RecordReader> workers;
  if (uri.starts_with(kKube)) workers = make_kube(uri);
  if (uri.starts_with(kStatic)) workers = make_static_reader(uri.substr(kStatic.size()));
  if (!workers) {
    refuse_uri(uri,
               "expected dir:PATH, etcd:http://HOST:PORT,.../PREFIX, k8s:NAMESPACE/SELECTOR"
               " or static:URL,...");
  }
  std::unique_ptr<Registry> others = make_writable(state);
  if (!others) refuse_uri(state, "expected dir:PATH or etcd:http://HOST:PORT,.../PREFIX for state");
  return make_joined_registry(uri.substr(0, uri.find('?')), std::move(workers), std::move(others));
}

std::string with_parameters(std::string uri, const EtcdParameters& parameters) {
  if (!uri.starts_with(kEtcd)) return uri;
  const auto add = [&](const char* name, const std::string& value) {
    if (value.empty()) return;
    uri += (uri.find('?') == uri.npos ? "?" : "&") + (name + ("=" + value));
  };
  add("ca", parameters.ca);
  add("cert", parameters.certificate);
  add("key", parameters.key);
  add("user", parameters.user);
  add("password-file", parameters.password_file);
  return uri;
}

}  // namespace fo::fleet
