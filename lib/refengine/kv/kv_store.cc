#include "refengine/kv/kv_store.h"

#include <utility>

#include "os/file/random.h"

namespace fo::refengine {

std::shared_ptr<void> KvStore::reserve(base::ByteCount bytes, Time now) {
  std::erase_if(kept_, [now](const auto& one) { return one.second.until <= now; });
  if (bytes > max_bytes_ || *used_ > max_bytes_ - bytes) return nullptr;
  *used_ += bytes;
  return {used_.get(), [used = used_, bytes](void*) { *used -= bytes; }};
}

std::string KvStore::keep(std::shared_ptr<const KvSnapshot> snapshot, Time now) {
  constexpr std::size_t kIdBytes = 16;
  std::string id = os::random_hex(kIdBytes);
  kept_[id] = {std::move(snapshot), now + kKeepTime};
  return id;
}

std::shared_ptr<const KvSnapshot> KvStore::find(const std::string& id, Time now) const {
  const auto found = kept_.find(id);
  return found == kept_.end() || found->second.until <= now ? nullptr : found->second.snapshot;
}

}  // namespace fo::refengine
