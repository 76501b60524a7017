#include "fleet/record/worker_url.h"

#include <boost/asio/ip/address.hpp>

#include "base/error.h"

namespace fo::fleet {

namespace ip = boost::asio::ip;
using base::Error;
using base::ExitStatus;

net::Url AllowedWorkers::check(const std::string& url) const {
  const auto refuse = [&](const char* reason) {
    return Error(ExitStatus::kUsage, "URL " + base::quoted(url) + ": " + reason);
  };
  net::Url parsed = net::parse_url(url);
  if (!parsed.socket_path.empty()) throw refuse("a worker needs http or https");
  boost::system::error_code error;
  const ip::address address = ip::make_address(parsed.address.host, error);
  if (!error && !contains(address)) throw refuse("not an address of the allowed networks");
  return parsed;
}

}  // namespace fo::fleet
