#include "gms/protocol/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "base/error.h"
#include "base/hex.h"

namespace fo::gms {
namespace {

void check(int result) {
  if (result != 1) {
    throw base::Error(base::ExitStatus::kSoftware, "compute SHA-256: OpenSSL failed");
  }
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  check(context_ ? EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) : 0);
}

void Sha256::add(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
}

std::string Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  check(EVP_DigestFinal_ex(context_.get(), digest.data(), &size));
  return base::to_hex(std::as_bytes(std::span(digest).first(size)));
}

}  // namespace fo::gms
