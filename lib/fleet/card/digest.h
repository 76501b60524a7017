// SHA-256 of texts and of lists of fields.
#pragma once

#include <string>
#include <string_view>

#include "gms/protocol/sha256.h"

namespace fo::fleet {

/// Prefix of a digest in a card; 64 hex digits follow.
inline constexpr std::string_view kDigestPrefix = "sha256:";

/// Whether `text` is kDigestPrefix and 64 lower-case hex digits.
bool is_digest(std::string_view text);

/// The SHA-256 of `text` in 64 hex digits.
std::string sha256_hex(std::string_view text);

/// The SHA-256 of a sequence of fields. Each is preceded by its length, in 8 bytes with the lowest
/// first, so that no two sequences have the same bytes.
class FieldHash {
 public:
  void add(std::string_view field);
  /// A digest, with its prefix. The object cannot be used afterwards.
  std::string finish();

 private:
  gms::Sha256 hash_;
};

}  // namespace fo::fleet
