// Locks in a test's etcd.
#pragma once

#include <cstddef>
#include <string>

#include "etcd/server.h"
#include "lock/lock_uri.h"

namespace fo::test {

/// `servers` is "HOST:PORT,…"; `parameters` begin with "?".
inline lock::LockUri etcd_lock(const std::string& servers, const std::string& key,
                               const std::string& parameters = "") {
  return lock::parse_lock_uri("etcd:http://" + servers + "/" + key + parameters);
}

/// The keys of a lock, the oldest first.
inline std::vector<std::string> queue_in(const Etcd& etcd, const std::string& key) {
  std::istringstream lines(
      etcd.run_etcdctl({"get", "--prefix", "--keys-only", "--sort-by=CREATE", key + "/"}));
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) names.push_back(line);
  }
  return names;
}

}  // namespace fo::test
