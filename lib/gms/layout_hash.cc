// Apart from layout.cc so that only those who hash need OpenSSL.
#include <openssl/evp.h>

#include <array>
#include <memory>
#include <string>

#include "base/error.h"
#include "gms/layout.h"

namespace fo::gms {
namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) fail();
  }
  void add(std::string_view bytes) {
    if (EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) != 1) fail();
  }
  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    if (EVP_DigestFinal_ex(context_.get(), digest.data(), &size) != 1) fail();
    constexpr std::string_view kHex = "0123456789abcdef";
    std::string text;
    for (unsigned i = 0; i < size; ++i) {
      text += kHex[digest[i] >> 4];
      text += kHex[digest[i] & 15];
    }
    return text;
  }

 private:
  [[noreturn]] static void fail() {
    throw base::Error(base::ExitStatus::kSoftware, "compute SHA-256: OpenSSL refused");
  }
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

}  // namespace

std::string layout_hash(const Layout& layout) {
  Sha256 hash;
  std::unordered_map<std::string_view, std::string> rank_of;
  for (const auto& [slot, allocation] : layout.allocations()) {
    std::string rank = std::to_string(rank_of.size());
    hash.add(rank + ":" + std::to_string(allocation.size) + ":" +
             std::to_string(allocation.aligned_size) + ":" + allocation.tag);
    rank_of.emplace(allocation.allocation_id, std::move(rank));
  }
  for (const auto& [key, entry] : layout.metadata()) {
    hash.add(key + ":" + rank_of.at(entry.allocation_id) + ":" +
             std::to_string(entry.offset_bytes) + ":");
    hash.add(entry.value);
  }
  return hash.hex();
}

}  // namespace fo::gms
