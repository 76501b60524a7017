#include "lock/lease/kube_identity.h"

#include "base/hex.h"
#include "lock/grant.h"

namespace fo::lock {
namespace {

constexpr std::size_t kIdentityDigits = 16;

}  // namespace

std::string make_identity(std::string_view id, std::string_view digits) {
  return std::string(id) + "_" + std::string(digits);
}

std::string id_of_identity(std::string_view identity) {
  if (identity.size() > kIdentityDigits + 1) {
    const std::string_view end = identity.substr(identity.size() - kIdentityDigits - 1);
    if (end.front() == '_' && base::is_hex(end.substr(1))) {
      identity.remove_suffix(end.size());
    }
  }
  return id_of_lock_file(identity);
}

}  // namespace fo::lock
