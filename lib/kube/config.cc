#include "kube/config.h"

#include <unistd.h>

#include <utility>

#include "base/error.h"
#include "base/strong.h"
#include "base/text.h"
#include "net/address.h"
#include "net/resolve.h"
#include "os/file/file.h"
#include "os/process/exec.h"

namespace fo::kube {
namespace {

using base::Error;
using base::ExitStatus;

constexpr base::ByteCount kMaxTokenBytes = 64 * base::kKiB;

// "https://HOST:PORT" from a pod's environment; empty outside of a pod.
std::string find_cluster(const std::string& what) {
  std::string host = os::variable("KUBERNETES_SERVICE_HOST");
  if (host.empty()) return {};
  std::string port = os::variable("KUBERNETES_SERVICE_PORT_HTTPS");
  if (port.empty()) port = os::variable("KUBERNETES_SERVICE_PORT");
  const bool is_v6 = host.find(':') != std::string::npos;
  const std::string server = (is_v6 ? "[" + host + "]" : host) + ":" + port;
  try {
    static_cast<void>(net::parse_server(server));
  } catch (const Error&) {
    throw Error(ExitStatus::kConfig, what + ": KUBERNETES_SERVICE_HOST " + base::quoted(host) +
                                         " and KUBERNETES_SERVICE_PORT " + base::quoted(port) +
                                         " are not the address of an API server");
  }
  return "https://" + server;
}

// Whether requests stay on this machine. net::resolve gives 127.0.0.1 for "localhost" without a
// query. Any other name counts as remote, even if it begins with "127.".
bool is_here(const std::string& server) {
  const std::string host = net::parse_url(server).address.host;
  return host == "localhost" || net::is_loopback(host);
}

bool is_there(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

}  // namespace

Config find_config(Config given, const std::string& what, const std::string& absent,
                   std::string_view folder) {
  Config config = std::move(given);
  if (config.server.empty()) config.server = find_cluster(what);
  if (config.server.empty()) {
    throw Error(ExitStatus::kConfig, what + ": no API server: " + absent +
                                         ", and without KUBERNETES_SERVICE_HOST this is not a pod");
  }
  const bool is_tls = config.server.starts_with("https://");
  const std::string authority = std::string(folder) + "/ca.crt";
  if (is_tls && config.tls.ca.empty()) {
    if (!is_there(authority)) {
      throw Error(ExitStatus::kConfig,
                  what + ": https needs ca=FILE: " + base::quoted(authority) + " does not exist");
    }
    config.tls.ca = authority;
  }
  const bool may_have_token = is_tls || is_here(config.server);
  if (!may_have_token && !config.token_file.empty()) {
    throw Error(ExitStatus::kConfig,
                what + ": a token is not sent to " + base::quoted(config.server) + " without TLS");
  }
  // A configured certificate is the client's identity, so the pod's token is not added.
  const std::string token = std::string(folder) + "/token";
  if (may_have_token && config.token_file.empty() && config.tls.certificate.empty() &&
      is_there(token)) {
    config.token_file = token;
  }
  return config;
}

std::string read_token(const std::string& path) {
  std::string token = os::read_file(path, kMaxTokenBytes);
  while (token.ends_with('\n') || token.ends_with('\r') || token.ends_with(' ')) token.pop_back();
  if (token.empty() || !base::is_graphic(token)) {
    throw Error(ExitStatus::kConfig, "read token file " + base::quoted(path) + ": it has no token");
  }
  return token;
}

}  // namespace fo::kube
