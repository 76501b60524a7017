#include "canary/judge/acquittal.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "json/object.h"
#include "os/log.h"

namespace fo::canary {
namespace {

using base::Deadline;
using boost::asio::awaitable;
using fleet::Record;
using fleet::Verdict;

constexpr char kAcquits[] = "acquits";

}  // namespace

std::string acquitted(const Verdict& conviction, text::WallTime now) {
  Verdict verdict = conviction;
  verdict.health = fleet::HealthState::kHealthy;
  verdict.weight = 1;
  verdict.reason = "acquitted; convicted before: " + conviction.reason;
  verdict.since = now;
  verdict.expires = now;
  nlohmann::json object = nlohmann::json::parse(fleet::encode(verdict));
  object[kAcquits] = text::format_time(conviction.since);
  return fo::json::dump(object);
}

std::optional<text::WallTime> acquits_since(std::string_view text) {
  const auto object = fo::json::find_object(text, fleet::kMaxRecordBytes);
  const nlohmann::json* const since = object ? fo::json::find(*object, kAcquits) : nullptr;
  if (since == nullptr || !since->is_string()) return std::nullopt;
  return text::parse_time(since->get_ref<const std::string&>());
}

awaitable<std::size_t> acquit(fleet::Registry& registry, std::string worker_id, Deadline deadline) {
  std::string prefix = "verdicts/" + worker_id + "/";
  const std::vector<Record> records = co_await registry.list(std::move(prefix), deadline);
  std::size_t count = 0;
  for (const Record& record : records) {
    bool is_conviction = false;
    try {
      is_conviction = fleet::decode_verdict(record).is_conviction();
    } catch (const base::Error& error) {
      os::log(os::LogLevel::kWarning, "{}", error.what());
    }
    if (!is_conviction) continue;
    bool is_acquitted = false;
    // The canary may have written the record again, and the edit may be called more than once.
    const fleet::Edit edit = [&](const std::string& text) {
      const Verdict verdict = fleet::decode_verdict({.key = record.key, .text = text});
      is_acquitted = verdict.is_conviction();
      return is_acquitted ? acquitted(verdict, std::chrono::system_clock::now()) : text;
    };
    const bool is_there = co_await registry.edit(record.key, edit, deadline);
    if (is_there && is_acquitted) ++count;
  }
  co_return count;
}

}  // namespace fo::canary
