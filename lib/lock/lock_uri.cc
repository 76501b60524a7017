#include "lock/lock_uri.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "net/address.h"
#include "text/ascii.h"

namespace fo::lock {
namespace {

constexpr std::string_view kForms =
    "flock:/path, unix:/path.sock, tcp:HOST:PORT, etcd:http://HOST:PORT/KEY, k8s:NAMESPACE/LEASE";

// etcd and Kubernetes count leases in whole seconds; a longer one would make failover useless.
constexpr base::Duration kMinLease = std::chrono::seconds(1);
constexpr base::Duration kMaxLease = std::chrono::hours(1);

class Parser {
 public:
  Parser(std::string_view text, std::string_view kube_api) : text_(text), kube_api_(kube_api) {}

  LockUri parse() {
    if (text_.starts_with('/')) return local(LockUri::Kind::kFlock, text_);
    const std::size_t colon = text_.find(':');
    const std::string_view kind = text_.substr(0, colon);
    if (colon == std::string_view::npos) refuse("expected one of " + std::string(kForms));
    const std::string_view rest = text_.substr(colon + 1);
    if (kind == "flock") return local(LockUri::Kind::kFlock, rest);
    if (kind == "unix") return local(LockUri::Kind::kLockd, rest);
    // Characters that could end a request's line early are refused.
    if (!base::is_graphic(rest)) {
      refuse("contains blanks, control or non-ASCII characters");
    }
    const std::size_t end = std::min(rest.find('?'), rest.size());
    const std::string_view place = rest.substr(0, end);
    uri_.path = text_.substr(0, colon + 1 + end);
    if (kind == "tcp") {
      tcp(place);
    } else if (kind == "etcd") {
      etcd(place);
    } else if (kind == "k8s") {
      lease(place);
    } else {
      refuse("unknown kind of lock; supported: " + std::string(kForms));
    }
    if (end < rest.size()) parameters(rest.substr(end + 1));
    if (kind == "k8s" && uri_.network.servers.empty() && !kube_api_.empty()) api(kube_api_);
    check_tls();
    return uri_;
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const {
    throw base::Error(base::ExitStatus::kUsage,
                      "read lock URI " + base::quoted(text_) + ": " + reason);
  }

  LockUri local(LockUri::Kind kind, std::string_view path) {
    if (!path.starts_with('/')) refuse("expected an absolute path, as in flock:/path");
    if (path.ends_with('/')) refuse("the path is a folder");
    uri_.kind = kind;
    uri_.path = path;
    return uri_;
  }

  void check_server(std::string_view server) const {
    try {
      static_cast<void>(net::parse_server(server));
    } catch (const base::Error&) {
      refuse("expected HOST:PORT, not " + base::quoted(server));
    }
  }

  void tcp(std::string_view place) {
    check_server(place);
    uri_.kind = LockUri::Kind::kTcp;
    uri_.network.servers = {std::string(place)};
    allowed_ = {"ca", "cert", "key"};
  }

  void etcd(std::string_view place) {
    uri_.kind = LockUri::Kind::kEtcd;
    allowed_ = {"ttl", "ca", "cert", "key", "user", "password-file"};
    std::string_view scheme = "http://";
    if (place.starts_with("https://")) scheme = "https://";
    if (!place.starts_with(scheme)) refuse("expected etcd:http://HOST:PORT/KEY or etcd:https://…");
    place.remove_prefix(scheme.size());
    const std::size_t slash = std::min(place.find('/'), place.size());
    uri_.network.key = place.substr(std::min(slash + 1, place.size()));
    for (const std::string_view server : text::split(place.substr(0, slash), ',')) {
      check_server(server);
      uri_.network.servers.push_back(std::string(scheme) + std::string(server));
    }
    if (uri_.network.key.empty())
      refuse("expected a key after the server: etcd:http://HOST:PORT/KEY");
  }

  // The object names that Kubernetes accepts: labels of [a-z0-9-], separated by dots.
  static bool is_name(std::string_view name, std::size_t longest) {
    const auto is_good = [](char c) {
      return text::is_lower(c) || text::is_digit(c) || c == '-' || c == '.';
    };
    const auto is_edge = [](char c) { return c != '-' && c != '.'; };
    return !name.empty() && name.size() <= longest &&
           std::all_of(name.begin(), name.end(), is_good) && is_edge(name.front()) &&
           is_edge(name.back()) && name.find("..") == std::string_view::npos;
  }

  void lease(std::string_view place) {
    uri_.kind = LockUri::Kind::kKube;
    allowed_ = {"duration", "api", "ca", "cert", "key", "token-file"};
    const std::size_t slash = place.find('/');
    if (slash == std::string_view::npos) refuse("expected k8s:NAMESPACE/LEASE");
    uri_.network.name_space = place.substr(0, slash);
    uri_.network.key = place.substr(slash + 1);
    if (!is_name(uri_.network.name_space, 63) ||
        uri_.network.name_space.find('.') != std::string::npos) {
      refuse("not a namespace: " + base::quoted(uri_.network.name_space));
    }
    if (!is_name(uri_.network.key, 253)) {
      refuse("not a Lease's name: " + base::quoted(uri_.network.key));
    }
  }

  void parameters(std::string_view text) {
    std::vector<std::string_view> seen;
    for (const std::string_view one : text::split(text, '&')) {
      const std::size_t equals = std::min(one.find('='), one.size());
      const std::string_view name = one.substr(0, equals);
      if (std::find(allowed_.begin(), allowed_.end(), name) == allowed_.end()) {
        std::string list;
        for (const std::string_view known : allowed_) {
          list += (list.empty() ? "" : ", ") + std::string(known);
        }
        refuse("unknown parameter " + base::quoted(name) + "; known: " + list);
      }
      if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
        refuse("parameter " + base::quoted(name) + " is given twice");
      }
      seen.push_back(name);
      if (equals + 1 >= one.size()) refuse("parameter " + base::quoted(name) + " has no value");
      parameter(name, one.substr(equals + 1));
    }
  }

  void parameter(std::string_view name, std::string_view value) {
    LockUri::Network& network = uri_.network;
    const std::array<std::pair<std::string_view, std::string*>, 5> files{
        {{"ca", &network.tls.ca},
         {"cert", &network.tls.certificate},
         {"key", &network.tls.key},
         {"password-file", &network.password_file},
         {"token-file", &network.token_file}}};
    for (const auto& [known, file] : files) {
      if (known != name) continue;
      if (!value.starts_with('/')) refuse(std::string(name) + ": expected an absolute path");
      *file = value;
    }
    if (name == "user") network.user = value;
    if (name == "ttl" || name == "duration") lease_time(name, value);
    if (name == "api") api(value);
  }

  void lease_time(std::string_view name, std::string_view value) {
    const std::optional<base::Duration> time = base::parse_duration(value);
    if (!time || *time < kMinLease || *time > kMaxLease ||
        *time % std::chrono::seconds(1) != base::Duration::zero()) {
      refuse(std::string(name) + ": expected whole seconds from 1s to 1h");
    }
    uri_.network.ttl = time;
  }

  void api(std::string_view value) {
    const bool is_tls = value.starts_with("https://");
    if (!is_tls && !value.starts_with("http://")) refuse("api: expected https://HOST:PORT");
    while (value.ends_with('/')) value.remove_suffix(1);
    check_server(value.substr(value.find("//") + 2));
    uri_.network.servers = {std::string(value)};
  }

  void check_tls() const {
    const net::TlsFiles& tls = uri_.network.tls;
    if (tls.certificate.empty() != tls.key.empty()) refuse("cert and key need each other");
    const auto& servers = uri_.network.servers;
    const bool is_https = !servers.empty() && servers.front().starts_with("https://");
    const bool is_http = !servers.empty() && servers.front().starts_with("http://");
    if (is_http && tls != net::TlsFiles{}) refuse("ca, cert and key are for https");
    // In a pod the API server's authority is known.
    if (is_https && uri_.kind == LockUri::Kind::kEtcd && tls.ca.empty()) {
      refuse("https needs ca=FILE");
    }
    if (uri_.kind == LockUri::Kind::kTcp && !tls.certificate.empty() && tls.ca.empty()) {
      refuse("TLS needs ca=FILE");
    }
    if (uri_.network.user.empty() != uri_.network.password_file.empty()) {
      refuse("user and password-file need each other");
    }
  }

  std::string_view text_;
  std::string_view kube_api_;
  LockUri uri_;
  std::vector<std::string_view> allowed_;
};

}  // namespace

LockUri parse_lock_uri(std::string_view text, std::string_view kube_api) {
  return Parser(text, kube_api).parse();
}

bool is_local(const LockUri& uri) {
  return uri.kind == LockUri::Kind::kFlock || uri.kind == LockUri::Kind::kLockd;
}

std::string names_of(const std::vector<LockUri>& locks) {
  std::string names;
  for (const LockUri& lock : locks) names += (names.empty() ? "" : " and ") + lock.path;
  return names;
}

LockUri parse_local_lock_uri(std::string_view text) {
  LockUri uri = parse_lock_uri(text);
  if (is_local(uri)) return uri;
  throw base::Error(base::ExitStatus::kUsage,
                    "lock URI " + base::quoted(text) +
                        ": engines find each other by the lock's file: use flock: or unix:");
}

}  // namespace fo::lock
