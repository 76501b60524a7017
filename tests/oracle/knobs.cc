#include "oracle/knobs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"

namespace fo::oracle {
namespace {

using base::Error;
using base::ExitStatus;
using nlohmann::json;

constexpr std::array<std::pair<Fault::Kind, std::string_view>, 10> kFaultNames{{
    {Fault::Kind::kStall, "stall"},
    {Fault::Kind::kReset, "reset"},
    {Fault::Kind::kCut, "cut"},
    {Fault::Kind::kHalf, "half"},
    {Fault::Kind::kEarlyEnd, "end"},
    {Fault::Kind::kError, "error"},
    {Fault::Kind::kAbort, "abort"},
    {Fault::Kind::kExit, "exit"},
    {Fault::Kind::kKill, "kill"},
    {Fault::Kind::kWrong, "wrong"},
}};

constexpr std::uint64_t kMaxCount = 1'000'000'000;

const std::vector<Knob>& knobs_table() {
  static const std::vector<Knob> table{
      {"first_token", &Knobs::first_token, "delay of the first token"},
      {"gap", &Knobs::gap, "delay of each further token"},
      {"jitter", &Knobs::jitter, "each delay is longer by up to this"},
      {"chunk", &Knobs::chunk, "tokens in an event of a stream", 1, 4096},
      {"random_chunks", &Knobs::random_chunks, "1 to --chunk tokens in an event"},
      {"write_bytes", &Knobs::write_bytes, "split events into writes of this size; 0: don't", 0,
       kMaxCount},
      {"half_characters", &Knobs::half_characters,
       "split long characters between events, as halves of a JSON escape"},
      {"padding", &Knobs::padding, "bytes of an unknown member in each answer; 0: none", 0,
       kMaxCount},
      {"fail", &Knobs::fail, "KIND@N, KIND@N-M or KIND@start, or none"},
      {"fail_every", &Knobs::fail_every, "only one of this many requests fails", 1, kMaxCount},
      {"fail_next", &Knobs::fail_next, "only this many further requests fail; 0: no limit", 0,
       kMaxCount},
      {"refuse_status", &Knobs::refuse_status, "the status of refused requests", 400, 599},
      {"refuse_every", &Knobs::refuse_every, "refuse one of this many requests; 0: none", 0,
       kMaxCount},
      {"refuse_next", &Knobs::refuse_next, "refuse this many further requests", 0, kMaxCount},
      {"retry_after", &Knobs::retry_after, "Retry-After of refused requests; 0: none"},
      {"slots", &Knobs::slots, "requests that run at a time; 0: any number", 0, kMaxCount},
      {"waiting", &Knobs::waiting, "requests that wait for a slot", 0, kMaxCount},
      {"busy_status", &Knobs::busy_status, "the status of requests beyond --waiting", 400, 599},
      {"token_ids",
       &Knobs::token_ids,
       "what return_token_ids does: yes, ignored, refused",
       0,
       0,
       {"yes", "ignored", "refused"}},
      {"health",
       &Knobs::health,
       "the answer of /health: yes, no, stall",
       0,
       0,
       {"yes", "no", "stall"}},
      {"wrong_sampler", &Knobs::wrong_sampler, "tokens are wrong at a temperature above 0"},
      {"logprob_noise", &Knobs::logprob_noise, "changes log-probabilities by up to this", 0, 10},
      {"reasoning", &Knobs::reasoning, "chats think before they answer"},
      {"tool_calls", &Knobs::tool_calls, "chats with tools answer with a call of the first"},
  };
  return table;
}

[[noreturn]] void refuse_knob(std::string_view name, const std::string& expected) {
  throw Error(ExitStatus::kUsage, std::string(name) + ": expected " + expected);
}

// The value as a header has it.
std::string text_of_value(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_primitive() ? value.dump() : std::string();
}

void set_member(Knobs& knobs, const Knob& knob, base::Duration Knobs::*member,
                const std::string& text) {
  const std::optional<base::Duration> duration = base::parse_duration(text);
  if (!duration) refuse_knob(knob.name, "a duration such as 20ms");
  knobs.*member = *duration;
}

void set_member(Knobs& knobs, const Knob& knob, std::uint64_t Knobs::*member,
                const std::string& text) {
  const std::optional<std::uint64_t> number = base::parse_uint(text);
  if (!number || *number < knob.min || *number > knob.max) {
    refuse_knob(knob.name, "a whole number from " + std::to_string(knob.min) + " to " +
                               std::to_string(knob.max));
  }
  knobs.*member = *number;
}

void set_member(Knobs& knobs, const Knob& knob, double Knobs::*member, const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  const bool is_number = result.ec == std::errc() && result.ptr == end;
  const bool is_in_range =
      number >= static_cast<double>(knob.min) && number <= static_cast<double>(knob.max);
  if (!is_number || !is_in_range) {
    refuse_knob(knob.name,
                "a number from " + std::to_string(knob.min) + " to " + std::to_string(knob.max));
  }
  knobs.*member = number;
}

void set_member(Knobs& knobs, const Knob& knob, bool Knobs::*member, const std::string& text) {
  if (text != "true" && text != "false") refuse_knob(knob.name, "true or false");
  knobs.*member = text == "true";
}

void set_member(Knobs& knobs, const Knob& knob, std::string Knobs::*member,
                const std::string& text) {
  if (std::ranges::find(knob.words, text) == knob.words.end()) {
    std::string list;
    for (const std::string& word : knob.words) list += (list.empty() ? "" : ", ") + word;
    refuse_knob(knob.name, "one of " + list);
  }
  knobs.*member = text;
}

void set_member(Knobs& knobs, const Knob&, Fault Knobs::*member, const std::string& text) {
  knobs.*member = parse_fault(text);
}

json to_value(base::Duration value) { return base::format_duration(value); }
json to_value(const Fault& value) { return to_text(value); }
template <typename Value>
json to_value(const Value& value) {
  return value;
}

}  // namespace

Fault parse_fault(std::string_view text) {
  if (text == "none") return {};
  const auto refuse = [] { refuse_knob("fail", "none, KIND@start, KIND@N or KIND@N-M"); };
  const std::size_t at = text.find('@');
  const auto found = std::ranges::find(kFaultNames, text.substr(0, at),
                                       &std::pair<Fault::Kind, std::string_view>::second);
  if (at == std::string_view::npos || found == kFaultNames.end()) refuse();
  Fault fault{.kind = found->first};
  const std::string_view place = text.substr(at + 1);
  if (place == "start") {
    fault.at_start = true;
    return fault;
  }
  const std::size_t dash = place.find('-');
  const auto first = base::parse_uint(place.substr(0, dash));
  const auto last =
      dash == std::string_view::npos ? first : base::parse_uint(place.substr(dash + 1));
  if (!first || !last || *last < *first || *last > kMaxCount) refuse();
  fault.first = *first;
  fault.last = *last;
  return fault;
}

std::string to_text(const Fault& fault) {
  if (fault.kind == Fault::Kind::kNone) return "none";
  const auto found =
      std::ranges::find(kFaultNames, fault.kind, &std::pair<Fault::Kind, std::string_view>::first);
  std::string text = std::string(found->second) + "@";
  if (fault.at_start) return text + "start";
  text += std::to_string(fault.first);
  return fault.last == fault.first ? text : text + "-" + std::to_string(fault.last);
}

std::span<const Knob> all_knobs() { return knobs_table(); }

void set_knobs(Knobs& knobs, const json& object) {
  if (!object.is_object()) refuse_knob("oracle", "an object");
  Knobs changed = knobs;
  for (const auto& [key, value] : object.items()) {
    const auto knob = std::ranges::find(knobs_table(), key, &Knob::name);
    if (knob == knobs_table().end()) {
      throw Error(ExitStatus::kUsage, base::quoted(key) + ": no such knob");
    }
    const std::string text = text_of_value(value);
    std::visit([&](auto member) { set_member(changed, *knob, member, text); }, knob->member);
  }
  knobs = changed;
}

json knobs_to_json(const Knobs& knobs) {
  json object = json::object();
  for (const Knob& knob : knobs_table()) {
    std::visit([&](auto member) { object[std::string(knob.name)] = to_value(knobs.*member); },
               knob.member);
  }
  return object;
}

}  // namespace fo::oracle
