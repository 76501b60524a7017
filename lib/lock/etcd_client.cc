#include "lock/etcd_client.h"

#include "base/error.h"

namespace fo::lock {

std::unique_ptr<LeaseClient> make_etcd_client(const LockUri& uri, const std::string&) {
  throw base::Error(base::ExitStatus::kUnavailable, "open lock " + base::quoted(uri.path));
}

LockStatus ask_etcd(const LockUri& uri, const base::Deadline&) {
  throw base::Error(base::ExitStatus::kUnavailable, "ask for lock " + base::quoted(uri.path));
}

}  // namespace fo::lock
