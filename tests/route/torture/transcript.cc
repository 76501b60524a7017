#include "route/torture/transcript.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "http/sse.h"

namespace fo::torture {
namespace {

using nlohmann::json;

constexpr std::array kEnvelope{"id", "object", "created", "model"};
// How much of a text is shown before and after the first difference.
constexpr std::size_t kBefore = 40;
constexpr std::size_t kAfter = 80;

class Reader {
 public:
  Transcript read(std::string_view body) {
    http::SseReader events;
    try {
      while (const auto event = events.next(body)) on_event(event->data);
    } catch (const base::Error& error) {
      wrong(error.what());
    }
    if (events.is_in_event()) wrong("the last event is incomplete");
    return std::move(transcript_);
  }

 private:
  void wrong(const std::string& what) { transcript_.errors.push_back(what); }
  json& content(const char* name) { return transcript_.content[name]; }
  void count(const char* name) {
    json& number = content(name);
    number = number.is_null() ? 1 : number.get<int>() + 1;
  }
  void append(const char* name, const json& list) {
    json& all = content(name);
    for (const json& one : list) all.push_back(one);
  }

  void on_event(const std::string& data) {
    if (transcript_.content.contains("dones")) wrong("an event after [DONE]: " + data);
    if (data == "[DONE]") return count("dones");
    const json event = json::parse(data, nullptr, false);
    if (!event.is_object()) return wrong("an event that is not JSON: " + data);
    if (event.contains("error")) return wrong("an error: " + data);
    read_envelope(event, data);
    if (event.contains("prompt_token_ids")) append("prompt_ids", event["prompt_token_ids"]);
    const json& choices = event["choices"];
    for (const json& choice : choices) read_choice(choice, data);
    if (event.contains("usage") && event["usage"].is_object()) read_usage(event["usage"]);
    if (choices.empty()) count("usage_events");
  }

  void read_envelope(const json& event, const std::string& data) {
    json envelope;
    for (const char* name : kEnvelope) envelope[name] = event.value(name, json());
    if (envelope_.is_null()) envelope_ = envelope;
    if (envelope != envelope_) wrong("an event with another id, model or time: " + data);
    content("object") = envelope["object"];
  }

  void read_choice(const json& choice, const std::string& data) {
    if (transcript_.content.contains("ends")) wrong("a choice after its end: " + data);
    const json& part = choice.contains("delta") ? choice["delta"] : choice;
    for (const char* name : {"text", "content"}) {
      const json text = part.value(name, json());
      json& all = content("text");
      if (all.is_null()) all = "";
      if (text.is_string()) all = all.get<std::string>() + text.get<std::string>();
    }
    if (part.contains("role")) count("roles");
    if (choice.contains("token_ids")) append("ids", choice["token_ids"]);
    if (choice.contains("prompt_token_ids")) append("prompt_ids", choice["prompt_token_ids"]);
    const json logprobs = choice.value("logprobs", json());
    if (logprobs.is_object()) {
      for (const auto& [name, list] : logprobs.items()) append(name.c_str(), list);
    }
    if (!choice.value("finish_reason", json()).is_string()) return;
    count("ends");
    content("finish_reason") = choice["finish_reason"];
    content("stop_reason") = choice.value("stop_reason", json());
  }

  void read_usage(const json& usage) {
    const json before = content("usage").value("completion_tokens", json(0));
    if (usage.value("completion_tokens", json(0)) < before) wrong("the usage falls");
    content("usage") = usage;
  }

  Transcript transcript_{.content = {{"usage", json::object()}}, .errors = {}};
  json envelope_;
};

// A member that is null is the same as none.
void drop_nulls(json& value) {
  if (value.is_array()) {
    for (json& one : value) drop_nulls(one);
  }
  if (!value.is_object()) return;
  for (auto at = value.begin(); at != value.end();) {
    drop_nulls(*at);
    at = at->is_null() ? value.erase(at) : std::next(at);
  }
}

// The texts from a little before the first byte that differs.
std::string compare_texts(const std::string& expected, const std::string& actual) {
  const auto at = static_cast<std::size_t>(
      std::mismatch(expected.begin(), expected.end(), actual.begin(), actual.end()).first -
      expected.begin());
  const std::size_t begin = at - std::min(at, kBefore);
  return "at byte " + std::to_string(at) + " of " + std::to_string(expected.size()) +
         "\n    expected: …" + base::quoted(expected.substr(begin, kBefore + kAfter)) +
         "\n    received: …" + base::quoted(actual.substr(begin, kBefore + kAfter));
}

}  // namespace

Transcript read_stream(std::string_view body) { return Reader().read(body); }

Transcript read_whole(std::string_view body) {
  Transcript transcript{.content = json::parse(body, nullptr, false), .errors = {}};
  if (!transcript.content.is_object()) {
    transcript.errors.push_back("the answer is not JSON: " + std::string(body));
    return transcript;
  }
  if (transcript.content.contains("error")) transcript.errors.emplace_back(body);
  for (const char* name : {"id", "created"}) transcript.content.erase(name);
  drop_nulls(transcript.content);
  return transcript;
}

std::string difference(const Transcript& expected, const Transcript& actual) {
  std::string text;
  for (const std::string& error : actual.errors) text += "  " + error + "\n";
  if (expected.content == actual.content) return text;
  const json nothing;
  json names = expected.content;
  if (actual.content.is_object()) names.update(actual.content);
  for (const auto& [name, ignored] : names.items()) {
    const json one = expected.content.value(name, nothing);
    const json other = actual.content.is_object() ? actual.content.value(name, nothing) : nothing;
    if (one == other) continue;
    const bool are_texts = one.is_string() && other.is_string();
    text += "  " + name + ": " +
            compare_texts(are_texts ? one.get<std::string>() : one.dump(),
                          are_texts ? other.get<std::string>() : other.dump()) +
            "\n";
  }
  return text;
}

}  // namespace fo::torture
