// Apart from layout.cc so that only those who hash need OpenSSL.
#include <span>
#include <string>

#include "gms/layout.h"
#include "gms/sha256.h"

namespace fo::gms {

std::string layout_hash(const Layout& layout) {
  Sha256 sha256;
  const auto add = [&sha256](std::string_view text) { sha256.add(std::as_bytes(std::span(text))); };
  std::unordered_map<std::string_view, std::string> rank_of;
  for (const auto& [slot, allocation] : layout.allocations()) {
    std::string rank = std::to_string(rank_of.size());
    add(rank + ":" + std::to_string(allocation.size) + ":" +
        std::to_string(allocation.aligned_size) + ":" + allocation.tag);
    rank_of.emplace(allocation.allocation_id, std::move(rank));
  }
  for (const auto& [key, entry] : layout.metadata()) {
    add(key + ":" + rank_of.at(entry.allocation_id) + ":" + std::to_string(entry.offset_bytes) +
        ":");
    add(entry.value);
  }
  return sha256.finish();
}

}  // namespace fo::gms
