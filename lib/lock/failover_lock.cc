#include "lock/failover_lock.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "lock/flock/flock_lock.h"
#include "lock/grant.h"
#include "lock/lease/etcd_client.h"
#include "lock/lease/kube_client.h"
#include "lock/lease/lease_lock.h"
#include "lock/lock_set.h"
#include "lock/lockd/lockd_client.h"
#include "lock/lockd/lockd_lock.h"

namespace fo::lock {

FailoverLock::FailoverLock(std::string path, std::string id)
    : path_(std::move(path)), id_(std::move(id)) {
  check_lock_id(id_);
}

std::vector<std::pair<std::string, std::string>> inheritance_of(const FailoverLock& lock) {
  std::vector<std::pair<std::string, std::string>> environment{{"FAILOVER_LOCK_ID", lock.id()}};
  const std::vector<int> fds = lock.fds();
  if (!fds.empty()) environment.emplace_back("FAILOVER_LOCK_FD", std::to_string(fds.front()));
  return environment;
}

std::unique_ptr<FailoverLock> open_lock(const LockUri& uri, const std::string& id,
                                        std::optional<int> fd) {
  using Kind = LockUri::Kind;
  if (fd && uri.kind != Kind::kFlock) {
    throw base::Error(base::ExitStatus::kUsage,
                      "lock " + base::quoted(uri.path) + ": only a flock has a descriptor");
  }
  const auto lease = [&](std::unique_ptr<LeaseClient> client) {
    return std::make_unique<LeaseLock>(uri.path, id, std::move(client));
  };
  switch (uri.kind) {
    case Kind::kFlock:
      return std::make_unique<FlockLock>(uri.path, id, fd);
    case Kind::kLockd:
      return std::make_unique<LockdLock>(uri.path, id);
    case Kind::kTcp:
      return lease(make_lockd_client(uri, id));
    case Kind::kEtcd:
      return lease(make_etcd_client(uri, id));
    case Kind::kKube:
      return lease(make_kube_client(uri, id));
  }
  throw base::Error(base::ExitStatus::kSoftware, "open a lock: unknown kind");
}

std::unique_ptr<FailoverLock> open_locks(const std::vector<LockUri>& uris, const std::string& id,
                                         std::optional<int> fd) {
  if (uris.size() == 1) return open_lock(uris.front(), id, fd);
  std::vector<std::unique_ptr<FailoverLock>> locks;
  std::vector<std::string> names;
  std::vector<os::FileKey> files;
  for (const LockUri& uri : uris) {
    // The process would wait for itself.
    const auto refuse_second = [&uri](auto& all, const auto& one) {
      if (std::find(all.begin(), all.end(), one) != all.end()) {
        throw base::Error(base::ExitStatus::kUsage,
                          "lock " + base::quoted(uri.path) + ": named twice");
      }
      all.push_back(one);
    };
    refuse_second(names, uri.path);
    const bool takes_fd = uri.kind == LockUri::Kind::kFlock;
    locks.push_back(open_lock(uri, id, takes_fd ? std::exchange(fd, std::nullopt) : std::nullopt));
    // The same file under another path.
    for (const int opened : locks.back()->fds()) refuse_second(files, os::file_key(opened));
  }
  if (fd) {
    throw base::Error(base::ExitStatus::kUsage, "lock " + base::quoted(uris.front().path) +
                                                    ": only a flock has a descriptor");
  }
  return std::make_unique<LockSet>(names_of(uris), std::move(locks));
}

}  // namespace fo::lock
