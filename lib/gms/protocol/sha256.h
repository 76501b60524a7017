// SHA-256, fed piece by piece.
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
  /// In lower-case hex; the end of this object's use.
  std::string finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace fo::gms
