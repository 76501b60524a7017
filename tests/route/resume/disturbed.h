// Answers of a router whose workers fail on the way, compared with those of an engine that does
// not.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "net/address.h"
#include "route/fleet.h"

namespace fo::test {

/// A chat, or a completion, of 24 tokens, with `more` members.
inline nlohmann::json long_answer(bool is_chat, const nlohmann::json& more = {}) {
  nlohmann::json body{
      {"model", "oracle"}, {"max_tokens", 24}, {"ignore_eos", true}, {"stream", true}};
  if (is_chat) {
    body["messages"] = {{{"role", "user"}, {"content", "Which way?"}}};
  } else {
    body["prompt"] = "Once upon";
  }
  if (!more.is_null()) body.update(more);
  return body;
}

inline std::string path_of_answer(const nlohmann::json& body) {
  return body.contains("messages") ? "/v1/chat/completions" : "/v1/completions";
}

/// The same without a stream.
inline nlohmann::json in_one_piece(nlohmann::json body) {
  body["stream"] = false;
  body.erase("stream_options");
  return body;
}

/// Appends each list of `part` to the one with the same name.
inline void append_lists(nlohmann::json& all, const nlohmann::json& part) {
  for (const auto& [name, list] : part.items()) {
    for (const nlohmann::json& item : list) all[name].push_back(item);
  }
}

/// Removes what is null, and the ids of calls.
inline void erase_incidentals(nlohmann::json& value) {
  if (value.is_object()) {
    for (auto at = value.begin(); at != value.end();) {
      const bool is_of_call = at.key() == "id" && value.contains("function");
      at = at->is_null() || is_of_call ? value.erase(at) : std::next(at);
    }
  }
  if (value.is_structured()) {
    for (nlohmann::json& member : value) erase_incidentals(member);
  }
}

/// What a client got. It does not depend on the answer's id and time, nor on how a stream was cut
/// into events, so that it is the same for equal answers.
inline nlohmann::json summary_of(const Client& call) {
  using nlohmann::json;
  json all{{"status", call->status()}, {"is_whole", call->is_whole()}};
  if (!call->header("content-type").starts_with("text/event-stream")) {
    json answer = call->json();
    if (answer.is_object()) {
      answer.erase("id");
      answer.erase("created");
    }
    erase_incidentals(answer);
    all["answer"] = std::move(answer);
    return all;
  }
  std::set<json> envelopes;
  int ends = 0;
  for (const std::string& data : call->events()) {
    if (data == "[DONE]") {
      ++ends;
      continue;
    }
    json event = json::parse(data, nullptr, false);
    if (event.contains("error")) {
      all["error"] = event["error"];
      continue;
    }
    if (ends > 0) all["after the end"].push_back(event);
    for (json& choice : event["choices"]) {
      json& whole = all["choices"][std::to_string(choice.value("index", -1))];
      if (whole.is_null()) whole = json::object();
      if (whole.contains("finish_reason")) whole["after the finish"].push_back(choice);
      const json& text = choice.contains("delta") ? choice["delta"] : choice;
      for (const char* name : {"content", "text", "reasoning_content"}) {
        if (!text.contains(name) || !text[name].is_string()) continue;
        whole[name] = whole.value(name, "") + text[name].get<std::string>();
      }
      if (text.contains("role")) whole["roles"].push_back(text["role"]);
      if (text.contains("tool_calls")) whole["tool_calls"].push_back(text["tool_calls"]);
      for (const char* name : {"finish_reason", "stop_reason"}) {
        if (choice.contains(name) && !choice[name].is_null()) whole[name] = choice[name];
      }
      for (const char* name : {"token_ids", "prompt_token_ids"}) {
        if (choice.contains(name) && choice[name].is_array()) {
          append_lists(whole, {{name, choice[name]}});
        }
      }
      if (choice.contains("logprobs") && choice["logprobs"].is_object()) {
        append_lists(whole["logprobs"], choice["logprobs"]);
      }
    }
    if (event.contains("prompt_token_ids") && !event["prompt_token_ids"].is_null()) {
      all["prompt_token_ids"] = event["prompt_token_ids"];
    }
    if (event.contains("usage") && !event["usage"].is_null()) {
      const bool is_last = event["choices"].empty();
      json& usages = is_last ? all["usage"] : all["usages"];
      // The finish may have an event of its own.
      if (usages.empty() || usages.back() != event["usage"]) usages.push_back(event["usage"]);
    }
    envelopes.insert({{"id", event["id"]}, {"created", event["created"]}});
    all["model"] = event["model"];
    all["object"] = event["object"];
  }
  all["ends"] = ends;
  all["envelopes"] = envelopes.size();
  erase_incidentals(all);
  return all;
}

/// A fleet whose workers stay in, however often they fail.
class DisturbedFleet : public Fleet {
 public:
  explicit DisturbedFleet(route::RouterOptions options = in_turns()) : Fleet(std::move(options)) {
    health_rules.suspicious_weight = 1;
    health_rules.faults_in_row = 1'000'000;
    health_rules.window_outcomes = 0;
  }
  explicit DisturbedFleet(std::size_t engines, route::RouterOptions options = in_turns())
      : DisturbedFleet(std::move(options)) {
    add_engines(engines);
  }

  /// What the engine itself answers.
  Client ask_directly(std::size_t number, const nlohmann::json& body) {
    const std::uint16_t port = net::parse_url(url(number)).address.port;
    return ask(body, path_of_answer(body), {}, port);
  }
  Client send_to_router(const nlohmann::json& body) { return ask(body, path_of_answer(body)); }
  Client begin_at_router(const nlohmann::json& body) { return begin(body, path_of_answer(body)); }

  /// The next request that this engine gets fails.
  void fail_next(std::size_t number, const std::string& fault) {
    oracle::Knobs& knobs = engine(number).knobs();
    knobs.fail = oracle::parse_fault(fault);
    knobs.fail_next = 1;
  }
  /// Asks the router until the first engine has failed, and returns that answer.
  Client ask_with_fault(const nlohmann::json& body, const std::string& fault) {
    fail_next(0, fault);
    const std::uint64_t faults = counts(0).faults;
    for (;;) {
      Client call = send_to_router(body);
      if (counts(0).faults > faults || call->status() != 200) return call;
    }
  }
  /// The value of a series of the router, such as `fo_route_queue_requests{model="m",card=""}`.
  std::string metric(const std::string& series) {
    const std::string text = router().metrics_text();
    const std::size_t at = text.find("\n" + series + " ");
    if (at == std::string::npos) return "no series " + series;
    const std::size_t begin = at + series.size() + 2;
    return text.substr(begin, text.find('\n', begin) - begin);
  }
  /// The answers with this outcome, and of those the ones that lost their worker for this reason.
  std::string resumes(const std::string& outcome) {
    int sum = 0;
    for (const char* reason : route::kLossReasonNames) sum += std::stoi(resumes(outcome, reason));
    return std::to_string(sum);
  }
  std::string resumes(const std::string& outcome, const std::string& reason) {
    return metric("fo_route_resumes_total{outcome=\"" + outcome + "\",reason=\"" + reason + "\"}");
  }
};

}  // namespace fo::test
