// Incremental SHA-256.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

struct evp_md_ctx_st;

namespace fo::gms {

class Sha256 {
 public:
  Sha256();
  void add(std::span<const std::byte> bytes);
  /// In lower-case hex. The object cannot be used afterwards.
  std::string finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace fo::gms
