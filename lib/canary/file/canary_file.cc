#include "canary/file/canary_file.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "json/object.h"

namespace fo::canary {
namespace {

using fo::json::Misfit;
using fo::json::needed_text;
using nlohmann::json;

constexpr int kFileVersion = 1;
constexpr std::size_t kMaxNameBytes = 100;
// Limit of the time of a canary's answer, which keeps sums of times from overflowing.
constexpr double kMaxAnswerSeconds = 86'400;

const json& member(const json& object, const char* name) {
  const json* const value = fo::json::find(object, name);
  if (value == nullptr) throw Misfit(std::string("missing ") + name);
  return *value;
}

const json& list_member(const json& object, const char* name, std::size_t max) {
  const json& value = member(object, name);
  if (!value.is_array() || value.empty() || value.size() > max) {
    throw Misfit(std::string(name) + " is not a list of 1 to " + std::to_string(max));
  }
  return value;
}

// Reads a number from 0 to `max`.
double number_member(const json& object, const char* name, double max) {
  const double number = finite(member(object, name), name);
  if (number < 0 || number > max) throw Misfit(std::string(name) + " is out of its range");
  return number;
}

AnswerToken read_token(const json& object) {
  if (!object.is_object()) throw Misfit("answer: a token is not an object");
  AnswerToken token;
  token.token = token_id(member(object, "token_id"), "token_id");
  token.logprob = finite(member(object, "logprob"), "logprob");
  const json& top = member(object, "top");
  if (!top.is_object() || top.size() > kMaxTopTokens) throw Misfit("top is not a small object");
  for (const auto& [text, logprob] : top.items()) token.top[text] = finite(logprob, "top");
  return token;
}

Canary read_canary(const json& object) {
  Canary canary;
  canary.text = needed_text(object, "prompt");
  for (const json& id : list_member(object, "prompt_token_ids", kMaxPromptTokens)) {
    canary.prompt.push_back(token_id(id, "prompt_token_ids"));
  }
  for (const json& token : list_member(object, "answer", kMaxAnswerTokens)) {
    canary.answer.push_back(read_token(token));
  }
  canary.max_tokens = fo::json::needed_number(object, "max_tokens");
  if (canary.max_tokens < canary.answer.size() || canary.max_tokens > kMaxAnswerTokens) {
    throw Misfit("max_tokens is out of its range");
  }
  canary.spread = number_member(object, "spread", 1'000);
  canary.time = std::chrono::round<base::Duration>(
      std::chrono::duration<double>(number_member(object, "seconds", kMaxAnswerSeconds)));
  return canary;
}

CanaryFile read_canary_file(const json& object) {
  const json& version = member(object, "version");
  if (version != kFileVersion) throw Misfit("version is not " + std::to_string(kFileVersion));
  CanaryFile file;
  file.model = needed_text(object, "model");
  file.card = needed_text(object, "card");
  const json& sampler = member(object, "sampler");
  if (!sampler.is_boolean()) throw Misfit("sampler is neither true nor false");
  file.has_sampler = sampler.get<bool>();
  std::set<std::string> names;
  for (const json& one : list_member(object, "canaries", kMaxCanaries)) {
    if (!one.is_object()) throw Misfit("a canary is not an object");
    const std::string name = needed_text(one, "name");
    if (name.empty() || name.size() > kMaxNameBytes)
      throw Misfit("the name of a canary is not 1 to 100 bytes long");
    const std::string what = "canary " + base::quoted(name);
    if (!names.insert(name).second) throw Misfit(what + " appears twice");
    try {
      file.canaries.push_back(read_canary(one));
    } catch (const Misfit& misfit) {
      throw Misfit(what + ": " + misfit.what());
    }
    file.canaries.back().name = name;
  }
  return file;
}

}  // namespace

double margin_of(const AnswerToken& token) {
  // The chosen token is among the best; it is the one with the same log-probability.
  double next = -std::numeric_limits<double>::infinity();
  bool is_found = false;
  for (const auto& [text, logprob] : token.top) {
    if (logprob == token.logprob && !is_found) {
      is_found = true;
    } else {
      next = std::max(next, logprob);
    }
  }
  return token.logprob - next;
}

double finite(const json& value, const std::string& name) {
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  if (!std::isfinite(number)) throw Misfit(name + " is not a number");
  return number;
}

TokenId token_id(const json& value, const char* name) {
  if (!value.is_number_unsigned() ||
      value.get<std::uint64_t>() > std::numeric_limits<TokenId>::max()) {
    throw Misfit(std::string(name) + ": not a token id");
  }
  return value.get<TokenId>();
}

std::string encode(const CanaryFile& file) {
  json canaries = json::array();
  for (const Canary& canary : file.canaries) {
    json answer = json::array();
    for (const AnswerToken& token : canary.answer) {
      answer.push_back({{"token_id", token.token}, {"logprob", token.logprob}, {"top", token.top}});
    }
    canaries.push_back({{"name", canary.name},
                        {"prompt", canary.text},
                        {"prompt_token_ids", canary.prompt},
                        {"max_tokens", canary.max_tokens},
                        {"seconds", base::seconds_of(canary.time)},
                        {"spread", canary.spread},
                        {"answer", std::move(answer)}});
  }
  return fo::json::dump({{"version", kFileVersion},
                         {"model", file.model},
                         {"card", file.card},
                         {"sampler", file.has_sampler},
                         {"canaries", std::move(canaries)}});
}

CanaryFile parse_canaries(std::string_view text, const std::string& path) {
  const auto what = [&] { return "read " + base::quoted(path); };
  return fo::json::read_object(text, kMaxCanaryFileBytes, what, read_canary_file,
                               base::ExitStatus::kBadData);
}

}  // namespace fo::canary
