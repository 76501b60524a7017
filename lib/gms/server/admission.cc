#include "gms/server/admission.h"

#include <algorithm>
#include <utility>

namespace fo::gms {
namespace {

template <typename T>
bool contains(const std::vector<T>& list, T value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

template <typename Key>
std::size_t count_of(const std::map<Key, std::size_t>& counts, Key key) {
  const auto found = counts.find(key);
  return found == counts.end() ? 0 : found->second;
}

// Entries with a count of zero are removed.
template <typename Key>
void take_one(std::map<Key, std::size_t>& counts, Key key) {
  const auto found = counts.find(key);
  if (found != counts.end() && --found->second == 0) counts.erase(found);
}

}  // namespace

Admission::Admission(AccessRules rules, uid_t own_uid, std::size_t max_connections)
    : rules_(std::move(rules)), own_uid_(own_uid), max_connections_(max_connections) {}

bool Admission::is_allowed(const os::PeerCredentials& peer,
                           const std::vector<gid_t>& groups) const {
  if (is_trusted(peer.uid) || contains(rules_.uids, peer.uid)) return true;
  if (contains(rules_.gids, peer.gid)) return true;
  return std::any_of(groups.begin(), groups.end(),
                     [this](gid_t group) { return contains(rules_.gids, group); });
}

std::optional<std::string> Admission::admit(const os::PeerCredentials& peer,
                                            const std::vector<gid_t>& groups) {
  const auto too_many = [](std::size_t has) {
    return "has " + std::to_string(has) + " connections";
  };
  if (!is_allowed(peer, groups)) return "it is not allowed";
  if (full()) return "the server is full";
  const std::size_t of_process = count_of(by_process_, peer.pid);
  if (of_process >= std::max<std::size_t>(max_connections_ / 4, 1)) {
    return "its process " + too_many(of_process);
  }
  const std::size_t of_user = count_of(by_user_, peer.uid);
  if (!is_trusted(peer.uid) && of_user >= std::max<std::size_t>(max_connections_ / 2, 1)) {
    return "its user " + too_many(of_user);
  }
  ++connections_;
  ++by_process_[peer.pid];
  ++by_user_[peer.uid];
  return std::nullopt;
}

void Admission::release(const os::PeerCredentials& peer) {
  --connections_;
  take_one(by_process_, peer.pid);
  take_one(by_user_, peer.uid);
}

}  // namespace fo::gms
