#include "route/resume/transcript.h"

#include <algorithm>

#include "base/utf8.h"
#include "json/scanner.h"
#include "route/resume/make_room.h"

namespace fo::route {
namespace {

// The text of a token may depend on as many tokens before it.
constexpr std::size_t kContext = 8;

}  // namespace

std::optional<std::string> Transcript::add(const std::vector<TokenId>& ids, std::string_view text) {
  make_room(tokens_, ids.size());
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  if (text.empty()) add_silent(ids);
  fo::json::join_halves(uncertain_, text);
  if (uncertain_.empty() || fo::json::ends_with_half(uncertain_)) return std::string();
  std::string certain = std::exchange(uncertain_, {});
  const std::size_t count = std::min(repeated_, certain.size());
  if (!text_.has_before_end(repeated_, std::string_view(certain).substr(0, count))) {
    tokens_.resize(safe_);
    return std::nullopt;
  }
  certain.erase(0, count);
  repeated_ -= count;
  text_.append(certain);
  // The tokens suffice to continue, so the whole text is not needed.
  if (!tokens_.empty()) text_.condense();
  safe_ = tokens_.size();
  return certain;
}

void Transcript::add_silent(const std::vector<TokenId>& ids) {
  for (const TokenId id : ids) {
    if (silent_.size() >= kMaxSilent) return;
    silent_.insert(id);
  }
}

void Transcript::begin_seam() {
  text_ = {};
  // The tokens of the thinking have a text, but not in the answer's content.
  silent_.clear();
  seam_begin_ = safe_ = tokens_.size();
}

bool Transcript::contains(const std::vector<std::uint64_t>& ids) const {
  return std::search(tokens_.begin(), tokens_.end(), ids.begin(), ids.end()) != tokens_.end();
}

std::vector<TokenId> Transcript::all() const {
  std::vector<TokenId> ids = prompt_;
  ids.insert(ids.end(), tokens_.begin(), tokens_.end());
  return ids;
}

std::vector<TokenId> Transcript::seam_ids(std::size_t end, const std::set<TokenId>& special) const {
  std::vector<TokenId> ids;
  const std::size_t of_answer = std::min(kContext, seam_begin_);
  const std::size_t of_prompt = std::min(kContext - of_answer, prompt_.size());
  ids.insert(ids.end(), prompt_.end() - static_cast<std::ptrdiff_t>(of_prompt), prompt_.end());
  ids.insert(ids.end(), tokens_.begin() + static_cast<std::ptrdiff_t>(seam_begin_ - of_answer),
             tokens_.begin() + static_cast<std::ptrdiff_t>(end));
  std::erase_if(ids, [&](TokenId id) { return special.contains(id); });
  return ids;
}

bool Transcript::begins_in_character(std::string_view context) const {
  return seam_begin_ > 0 && context.ends_with(base::kReplacement);
}

std::optional<std::size_t> Transcript::match_seam(std::string_view context,
                                                  std::string_view compared) const {
  if (!compared.starts_with(context)) return std::nullopt;
  compared.remove_prefix(context.size());
  if (!text_.starts_with(compared)) return std::nullopt;
  return text_.size() - compared.size();
}

void Transcript::rewind(std::size_t end, std::size_t repeated) {
  tokens_.resize(end);
  safe_ = end;
  uncertain_.clear();
  repeated_ = repeated;
}

}  // namespace fo::route
