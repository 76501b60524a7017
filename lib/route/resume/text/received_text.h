// The text of one answer so far, to be compared with the text that another worker reports for the
// same tokens. If the tokens are kept, the beginning of a long text is kept as a hash alone,
// because the text would need as much memory as the tokens. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fo::route {

class ReceivedText {
 public:
  void append(std::string_view text);
  /// Replaces the text by a hash, except for its last kBlockBytes or more.
  void condense();

  [[nodiscard]] std::size_t size() const { return condensed_ + rest_.size(); }
  [[nodiscard]] bool is_whole() const { return condensed_ == 0; }
  /// The text, if it is_whole().
  [[nodiscard]] const std::string& whole() const { return rest_; }

  /// Whether the text begins with `beginning`; false if `beginning` is shorter than the part that
  /// is kept as a hash.
  [[nodiscard]] bool starts_with(std::string_view beginning) const;
  /// Whether `piece` begins `back` bytes before the end; `back` is at most kBlockBytes.
  [[nodiscard]] bool has_before_end(std::size_t back, std::string_view piece) const;

  /// More than the text of the tokens that may be generated again at a seam, which are eight.
  static constexpr std::size_t kBlockBytes = 2048;

 private:
  /// The hash of the first `condensed_` bytes, by blocks.
  std::uint64_t hash_ = 0;
  std::size_t condensed_ = 0;
  std::string rest_;
};

}  // namespace fo::route
