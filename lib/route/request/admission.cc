#include "route/request/admission.h"

#include <algorithm>
#include <cmath>
#include <ratio>
#include <utility>

#include "fleet/card/digest.h"

namespace fo::route {
namespace {

using Minutes = std::chrono::duration<double, std::ratio<60>>;

const KeyRule kEverything{.tier = plan::kPremium};

void set_bucket(std::optional<TokenBucket>& bucket, const std::optional<std::uint64_t>& per_minute,
                base::Duration now) {
  if (!per_minute) {
    bucket.reset();
  } else if (bucket) {
    bucket->set_rate(*per_minute, now);
  } else {
    bucket.emplace(*per_minute);
  }
}

}  // namespace

bool KeyRule::permits(std::string_view model) const {
  return models.empty() || std::find(models.begin(), models.end(), model) != models.end();
}

TokenBucket::TokenBucket(std::uint64_t per_minute)
    : per_minute_(static_cast<double>(per_minute)), level_(per_minute_) {}

double TokenBucket::level_at(base::Duration now) const {
  return std::min(per_minute_, level_ + per_minute_ * Minutes(now - changed_at_).count());
}

base::Duration TokenBucket::wait_for(std::uint64_t amount, base::Duration now) const {
  const double missing = std::min(static_cast<double>(amount), per_minute_) - level_at(now);
  if (missing <= 0 && (per_minute_ > 0 || amount == 0)) return base::Duration(0);
  if (per_minute_ <= 0) return std::chrono::minutes(1);
  const std::chrono::duration<double, base::Duration::period> wait = Minutes(missing / per_minute_);
  // Rounded up: at the end of the wait, nothing is missing.
  return base::Duration(static_cast<base::Duration::rep>(std::ceil(wait.count())));
}

void TokenBucket::change(double amount, base::Duration now) {
  level_ = std::min(per_minute_, level_at(now) + amount);
  changed_at_ = now;
}

void TokenBucket::remove(std::uint64_t amount, base::Duration now) {
  change(-static_cast<double>(amount), now);
}

void TokenBucket::add(std::uint64_t amount, base::Duration now) {
  change(static_cast<double>(amount), now);
}

void TokenBucket::set_rate(std::uint64_t per_minute, base::Duration now) {
  const double used = per_minute_ - level_at(now);
  const double minutes = per_minute_ > 0 ? used / per_minute_ : 0;
  per_minute_ = static_cast<double>(per_minute);
  level_ = per_minute_ - std::min(used, per_minute_ * std::max(minutes, 1.0));
  changed_at_ = now;
}

Admission::Admission(std::optional<KeyRules> rules) {
  set_rules(std::move(rules), base::Duration(0));
}

void Admission::set_rules(std::optional<KeyRules> rules, base::Duration now) {
  has_rules_ = rules.has_value();
  std::unordered_map<std::string, Client> clients;
  for (const auto& [key, rule] : rules.value_or(KeyRules{})) {
    Client& client = clients[key];
    if (const auto before = clients_.find(key); before != clients_.end()) client = before->second;
    set_rule(client, rule, now);
  }
  clients_ = std::move(clients);
}

void Admission::set_rule(Client& client, const KeyRule& rule, base::Duration now) {
  client.rule = rule;
  set_bucket(client.requests, rule.requests_per_minute, now);
  set_bucket(client.tokens, rule.tokens_per_minute, now);
}

Admission::Admitted Admission::admit(std::optional<std::string_view> key, std::string_view model,
                                     std::uint64_t tokens, base::Duration now) {
  using enum AdmissionAnswer;
  if (!has_rules_) return {};
  if (!key) return {.answer = kUnknownKey};
  std::string hash = fleet::sha256_hex(*key);
  const auto found = clients_.find(hash);
  if (found == clients_.end()) return {.answer = kUnknownKey};
  Client& client = found->second;
  Admitted admitted{.tier = client.rule.tier, .key = std::move(hash)};
  const auto refuse = [&](AdmissionAnswer answer, base::Duration retry_after) {
    admitted.answer = answer;
    admitted.retry_after = retry_after;
    return admitted;
  };
  if (!client.rule.permits(model)) return refuse(kNoModel, base::Duration(0));
  if (client.running >= client.rule.requests_at_a_time.value_or(UINT64_MAX)) {
    // It is not known when one of the running requests ends.
    return refuse(kConcurrency, std::chrono::seconds(1));
  }
  const auto wait_for = [&](const std::optional<TokenBucket>& bucket, std::uint64_t amount) {
    return bucket ? bucket->wait_for(amount, now) : base::Duration(0);
  };
  const base::Duration for_requests = wait_for(client.requests, 1);
  const base::Duration for_tokens = wait_for(client.tokens, tokens);
  const base::Duration longest = std::max(for_requests, for_tokens);
  if (for_requests > base::Duration(0)) return refuse(kRequests, longest);
  if (for_tokens > base::Duration(0)) return refuse(kTokens, longest);
  if (client.requests) client.requests->remove(1, now);
  if (client.tokens) client.tokens->remove(tokens, now);
  ++client.running;
  return admitted;
}

void Admission::end(const std::string& key, std::uint64_t admitted_tokens, std::uint64_t tokens,
                    base::Duration now) {
  const auto found = clients_.find(key);
  if (found == clients_.end()) return;
  Client& client = found->second;
  // If the key was removed and added again meanwhile, `running` does not include this request.
  if (client.running > 0) --client.running;
  if (!client.tokens) return;
  // Only the difference is applied: a bucket that has filled since has no room for all admitted
  // tokens.
  if (tokens > admitted_tokens) {
    client.tokens->remove(tokens - admitted_tokens, now);
  } else {
    client.tokens->add(admitted_tokens - tokens, now);
  }
}

const KeyRule* Admission::find_rule(std::optional<std::string_view> key) const {
  if (!has_rules_) return &kEverything;
  if (!key) return nullptr;
  const auto found = clients_.find(fleet::sha256_hex(*key));
  return found == clients_.end() ? nullptr : &found->second.rule;
}

}  // namespace fo::route
