#include "oracle/model/output_text.h"

#include "base/utf8.h"

namespace fo::oracle {
OutputText::OutputText(const Options& options)
    : special_(options.special), text_({options.stops, options.include_stop, options.min_tokens}) {}

void OutputText::add(TokenId token) {
  if (special_ == SpecialTokens::kShown || !is_special(token)) pending_ += bytes_of(token);
  std::string decoded = valid_text(pending_);
  // An invalid byte looks like an incomplete character until a valid one follows.
  if (decoded.ends_with(base::kReplacement)) {
    decoded.clear();
  } else {
    pending_.clear();
  }
  text_.add(decoded);
}

}  // namespace fo::oracle
