// Admits requests by the keys of the router's configuration: each key has a tier and limits. Pure:
// time, which must not go back, is an argument.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/units.h"
#include "plan/degradation.h"

namespace fo::route {

/// The permissions of a key. A limit of nullopt means that there is none.
struct KeyRule {
  std::size_t tier = plan::kStandard;
  std::optional<std::uint64_t> requests_per_minute = {};
  /// Tokens of prompts and answers.
  std::optional<std::uint64_t> tokens_per_minute = {};
  std::optional<std::uint64_t> requests_at_a_time = {};
  /// Empty: all models.
  std::vector<std::string> models = {};

  [[nodiscard]] bool permits(std::string_view model) const;
};

/// Rules by the SHA-256 of the key, in lower-case hex: the router does not have the keys
/// themselves.
using KeyRules = std::unordered_map<std::string, KeyRule>;

/// A bucket that holds the amount of one minute, is full at first, and refills evenly.
class TokenBucket {
 public:
  explicit TokenBucket(std::uint64_t per_minute);

  /// Returns the time until the bucket has `amount`; 0 if it has it now. For more than a minute's
  /// amount, it is the time until the bucket is full.
  [[nodiscard]] base::Duration wait_for(std::uint64_t amount, base::Duration now) const;
  /// Removes `amount`. The content may become negative.
  void remove(std::uint64_t amount, base::Duration now);
  /// Adds `amount`, which was removed and not used. The bucket is full at most.
  void add(std::uint64_t amount, base::Duration now);
  /// Changes the rate. The amount that is missing from a full bucket stays the same, unless it
  /// would take over a minute to refill, and longer than before: then it is less.
  void set_rate(std::uint64_t per_minute, base::Duration now);

 private:
  [[nodiscard]] double level_at(base::Duration now) const;
  void change(double amount, base::Duration now);

  double per_minute_;
  double level_;
  base::Duration changed_at_{0};
};

enum class AdmissionAnswer {
  kAdmitted,
  kUnknownKey,   // or no key: status 401
  kNoModel,      // not one of the key's models: 404, as if there were no such model
  kRequests,     // too many in a minute: 429, as for those below
  kTokens,       // too many in a minute
  kConcurrency,  // too many requests at a time
};

class Admission {
 public:
  /// Without rules, for example because there is no file of keys, every client is premium and has
  /// no limit, with any key and without one.
  explicit Admission(std::optional<KeyRules> rules);

  /// Replaces the rules. The use of keys that remain still counts.
  void set_rules(std::optional<KeyRules> rules, base::Duration now);

  struct Admitted {
    AdmissionAnswer answer = AdmissionAnswer::kAdmitted;
    std::size_t tier = plan::kPremium;
    /// The SHA-256 of the key, for end(); empty without rules.
    std::string key = {};
    /// For a limit per minute: the time until the request would be within it.
    base::Duration retry_after{0};
  };
  /// Admits and counts a request of about `tokens`, which is running until end(). A request that is
  /// not admitted does not count.
  Admitted admit(std::optional<std::string_view> key, std::string_view model, std::uint64_t tokens,
                 base::Duration now);

  /// A request that was admitted with `admitted_tokens` has ended, and needed `tokens`.
  void end(const std::string& key, std::uint64_t admitted_tokens, std::uint64_t tokens,
           base::Duration now);

  /// The rule of a key, for example to list its models; nullptr if the key is unknown or missing.
  /// Without rules, it is one that permits everything. Valid until set_rules().
  [[nodiscard]] const KeyRule* find_rule(std::optional<std::string_view> key) const;

 private:
  struct Client {
    KeyRule rule;
    std::optional<TokenBucket> requests;
    std::optional<TokenBucket> tokens;
    std::uint64_t running = 0;
  };
  static void set_rule(Client& client, const KeyRule& rule, base::Duration now);

  bool has_rules_ = false;
  std::unordered_map<std::string, Client> clients_;
};

}  // namespace fo::route
