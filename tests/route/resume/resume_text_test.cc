// Answers of engines that do not name their tokens, which continue after their text.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "route/fleet.h"
#include "route/resume/disturbed.h"
#include "route/scripted_worker.h"

namespace fo::test {
namespace {

using nlohmann::json;

constexpr std::uint64_t kTokens = 24;

route::RouterOptions with_text() {
  route::RouterOptions options = in_turns();
  options.rules.resume.text = true;
  return options;
}

// The text that an engine sends before this fault.
std::string text_before(DisturbedFleet& fleet, json body, const std::string& fault) {
  body["oracle"] = {{"fail", fault}};
  return fleet.ask_directly(1, body)->text();
}

// The request for what follows `text`.
json continuation_of(json body, const std::string& text, std::uint64_t tokens) {
  const std::string prefix = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  if (body.contains("messages")) {
    body["messages"].push_back({{"role", "assistant"}, {"content", prefix}});
    body["continue_final_message"] = true;
    body["add_generation_prompt"] = false;
  } else {
    body["prompt"] = body["prompt"].get<std::string>() + prefix;
  }
  if (body.contains("max_tokens")) body["max_tokens"] = tokens;
  return body;
}

// `text` and the rest, without the white space that both have at the seam.
std::string joined(const std::string& text, const std::string& rest) {
  const std::size_t end = text.find_last_not_of(" \t\r\n") + 1;
  std::size_t again = 0;
  while (end + again < text.size() && again < rest.size() && text[end + again] == rest[again]) {
    ++again;
  }
  return text + rest.substr(again);
}

json usage_in(const Client& call) {
  if (call->json().is_object()) return call->json()["usage"];
  const std::vector<std::string> events = call->events();
  return json::parse(events.at(events.size() - 2))["usage"];
}

class EachPlainEngine : public FdCounting, public testing::WithParamInterface<const char*> {
 protected:
  // Engines that the router knows to be plain.
  void add_engines(DisturbedFleet& fleet, std::size_t count,
                   const oracle::EngineOptions& options = {}) {
    fleet.add_engines(count, options);
    for (std::size_t i = 0; i < count; ++i) {
      fleet.engine(i).knobs().token_ids = GetParam();
      fleet.worker(i).lacks_token_ids = true;
    }
  }
};

TEST_P(EachPlainEngine, AnAnswerGoesOnAfterItsText) {
  DisturbedFleet fleet(with_text());
  add_engines(fleet, 2);
  for (const bool is_chat : {true, false}) {
    const json body = long_answer(is_chat, {{"stream_options", {{"include_usage", true}}}});
    const Client undisturbed = fleet.ask_directly(1, body);
    const json usage = usage_in(undisturbed);
    for (std::uint64_t place = 1; place < kTokens; ++place) {
      const std::string fault = "cut@" + std::to_string(place);
      const std::string before = text_before(fleet, body, fault);
      // Without any text, the answer begins again.
      if (before.empty()) continue;
      const json rest = continuation_of(body, before, kTokens - place);
      const std::string expected = joined(before, fleet.ask_directly(1, rest)->text());
      for (const bool is_streamed : {true, false}) {
        const Client call = fleet.ask_with_fault(is_streamed ? body : in_one_piece(body), fault);
        EXPECT_EQ(call->text(), expected) << place;
        EXPECT_EQ(usage_in(call), usage) << place;
        if (!is_streamed) continue;
        const json summary = summary_of(call);
        EXPECT_EQ(summary["ends"], 1);
        EXPECT_EQ(summary["envelopes"], summary_of(undisturbed)["envelopes"]);
        EXPECT_EQ(summary["choices"]["0"]["finish_reason"], "length");
        EXPECT_NE(call->body().find(": fo-route: resumed 1 as text\n"), std::string::npos);
      }
    }
  }
  EXPECT_EQ(fleet.resumes("refused"), "0");
}

// The engine refuses max_tokens that exceed its context together with the prompt.
TEST_P(EachPlainEngine, AnAnswerWithoutALimitEndsWithTheContext) {
  DisturbedFleet fleet(with_text());
  oracle::EngineOptions options;
  options.model.max_model_len = 128;
  add_engines(fleet, 2, options);
  json body = long_answer(true, {{"stream_options", {{"include_usage", true}}}});
  body.erase("max_tokens");
  const Client undisturbed = fleet.ask_directly(1, body);
  const std::uint64_t tokens = usage_in(undisturbed)["completion_tokens"];
  for (const std::uint64_t place : {9U, 20U}) {
    const std::string fault = "cut@" + std::to_string(place);
    const std::string before = text_before(fleet, body, fault);
    const json rest = continuation_of(body, before, 0);
    const Client call = fleet.ask_with_fault(body, fault);
    EXPECT_EQ(call->text(), joined(before, fleet.ask_directly(1, rest)->text())) << place;
    EXPECT_EQ(call->events().back(), "[DONE]");
    EXPECT_EQ(summary_of(call)["choices"]["0"]["finish_reason"], "length");
  }
  EXPECT_EQ(fleet.resumes("resumed"), "2");
  // The router knows that the context has no room for more.
  const std::string fault = "cut@" + std::to_string(tokens);
  const Client call = fleet.ask_with_fault(body, fault);
  EXPECT_EQ(call->text(), text_before(fleet, body, fault));
  EXPECT_EQ(call->events().back(), "[DONE]");
  EXPECT_EQ(summary_of(call)["choices"]["0"]["finish_reason"], "length");
  EXPECT_EQ(fleet.resumes("finished"), "1");
  EXPECT_EQ(fleet.resumes("refused"), "0");
}

TEST_P(EachPlainEngine, AnAnswerSurvivesTwoDeaths) {
  DisturbedFleet fleet(with_text());
  add_engines(fleet, 3);
  const json body = long_answer(true, {{"stream_options", {{"include_usage", true}}}});
  const json usage = usage_in(fleet.ask_directly(1, body));
  const std::string first = text_before(fleet, body, "cut@7");
  const std::string second =
      joined(first, text_before(fleet, continuation_of(body, first, kTokens - 7), "cut@6"));
  const json rest = continuation_of(body, second, kTokens - 13);
  const std::string expected = joined(second, fleet.ask_directly(1, rest)->text());
  for (;;) {
    fleet.fail_next(0, "cut@7");
    fleet.fail_next(1, "cut@6");
    const Client call = fleet.send_to_router(body);
    // The worker's turn may be another one.
    if (call->body().find(": fo-route: resumed 2 as text\n") == std::string::npos) continue;
    if (call->text().substr(0, second.size()) != second) continue;
    EXPECT_EQ(call->text(), expected);
    EXPECT_EQ(usage_in(call), usage);
    EXPECT_EQ(call->events().back(), "[DONE]");
    break;
  }
}

TEST_P(EachPlainEngine, StopStringsEndAnAnswerAcrossTheSeam) {
  DisturbedFleet fleet(with_text());
  add_engines(fleet, 2);
  json body = long_answer(false);
  const std::string before = text_before(fleet, body, "cut@9");
  const std::string rest =
      fleet.ask_directly(1, continuation_of(body, before, kTokens - 9))->text();
  const std::string whole = joined(before, rest);
  ASSERT_GT(whole.size(), before.size() + 2);
  body["stop"] = whole.substr(before.size() - 1, 3);
  ASSERT_EQ(whole.find(body["stop"]), before.size() - 1);
  const Client call = fleet.ask_with_fault(body, "cut@9");
  EXPECT_EQ(call->text(), whole.substr(0, before.size() - 1));
  EXPECT_EQ(summary_of(call)["choices"]["0"]["finish_reason"], "stop");
  EXPECT_EQ(summary_of(call)["choices"]["0"]["stop_reason"], body["stop"]);
}

TEST_P(EachPlainEngine, TheStreamOfADrainedWorkerMoves) {
  route::RouterOptions options = with_text();
  options.resume.drain = base::Duration::zero();
  DisturbedFleet fleet(std::move(options));
  add_engines(fleet, 2);
  const json body =
      long_answer(true, {{"max_tokens", 400}, {"stream_options", {{"include_usage", true}}}});
  fleet.engine(0).knobs().gap = std::chrono::milliseconds(20);
  Client call;
  while (fleet.busy(0) == 0) {
    call = fleet.begin_at_router(body);
    fleet.run_until([&] { return fleet.busy(0) > 0 || call->has_ended(); });
  }
  fleet.run_until([&] { return !call->text().empty(); });
  fleet.worker(0).is_drained = true;
  fleet.router().on_change();
  fleet.run_until([&] { return call->has_ended(); });
  EXPECT_EQ(fleet.counts(0).length, 0U);
  EXPECT_EQ(call->events().back(), "[DONE]");
  EXPECT_EQ(usage_in(call)["completion_tokens"], 400);
  EXPECT_NE(call->body().find(": fo-route: resumed 1 as text\n"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(, EachPlainEngine, testing::Values("ignored", "refused"),
                         [](const auto& how) { return std::string(how.param); });

class ResumeText : public FdCounting {
 protected:
  static constexpr const char* kHead =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
  static std::string event(const std::string& text_as_json, const char* finish = "null") {
    return "data: {\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" +
           text_as_json + "\"},\"finish_reason\":" + finish + "}]}\n\n";
  }
  static json body_in(const std::string& request) {
    return json::parse(request.substr(request.find("\r\n\r\n") + 4));
  }
};

// The first answer ends within a character that its JSON splits, and after white space that the
// second one repeats in part.
TEST_F(ResumeText, TheSeamIsAfterTheLastWholeCharacter) {
  DisturbedFleet fleet(with_text());
  std::vector<json> requests;
  const auto script = [&](ScriptedWorker::Peer& peer, const std::string& request) {
    requests.push_back(body_in(request));
    std::string answer = kHead;
    if (requests.size() == 1) {
      answer += event("so \\ud83d\\ude42 \\n") + event("\\ud83d");
    } else {
      answer += event(" ") + event("\\n\\ud83d") + event("\\ude42 it", "\"stop\"");
    }
    return peer.write(answer);
  };
  ScriptedWorker first(fleet.executor(), script);
  ScriptedWorker second(fleet.executor(), script);
  fleet.add_worker(first.url());
  fleet.add_worker(second.url());
  const Client call = fleet.send_to_router(long_answer(true));
  EXPECT_EQ(call->text(), "so 🙂 \n🙂 it");
  EXPECT_EQ(call->events().back(), "[DONE]");
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[1]["messages"].back(), json({{"role", "assistant"}, {"content", "so 🙂"}}));
  EXPECT_EQ(requests[1]["continue_final_message"], true);
  EXPECT_EQ(requests[1]["add_generation_prompt"], false);
  // The engine does not count its tokens: an event is one.
  EXPECT_EQ(requests[1]["max_tokens"], kTokens - 2);
}

TEST_F(ResumeText, AWorkerThatTakesNoStreamIsSoonAskedOnlyAsTheClientAsks) {
  DisturbedFleet fleet(with_text());
  ScriptedWorker worker(fleet.executor(), [](ScriptedWorker::Peer& peer, std::string request) {
    if (request.find("stream_options") != std::string::npos) {
      return peer.write("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    }
    return peer.write(kHead + event("a", "\"stop\"") + "data: [DONE]\n\n");
  });
  fleet.add_worker(worker.url());
  for (const int requests : {2, 4, 5, 6}) {
    EXPECT_EQ(fleet.send_to_router(long_answer(true))->text(), "a");
    EXPECT_EQ(worker.requests(), requests);
  }
}

struct UnfitFeature {
  const char* name;
  bool is_chat;
  const char* members;
  const char* reason;
};

void PrintTo(const UnfitFeature& feature, std::ostream* out) { *out << feature.members; }

class EachFeatureUnfitForText : public FdCounting,
                                public testing::WithParamInterface<UnfitFeature> {};

TEST_P(EachFeatureUnfitForText, AStartedStreamEndsWithTheReason) {
  route::RouterOptions options = with_text();
  options.rules.resume.penalties = true;
  DisturbedFleet fleet(2, std::move(options));
  for (const std::size_t engine : {0U, 1U}) fleet.engine(engine).knobs().token_ids = "ignored";
  const json body = long_answer(GetParam().is_chat, json::parse(GetParam().members));
  const Client call = fleet.ask_with_fault(body, "cut@20");
  EXPECT_EQ(call->error_code(), "worker_lost");
  EXPECT_NE(call->error_message().find(GetParam().reason), std::string::npos)
      << call->error_message();
  EXPECT_EQ(fleet.resumes("refused"), "1");
}

INSTANTIATE_TEST_SUITE_P(
    , EachFeatureUnfitForText,
    testing::Values(
        UnfitFeature{"LogProbs", false, R"({"logprobs":1})", "'logprobs': "},
        UnfitFeature{"FrequencyPenalty", true, R"({"frequency_penalty":1})",
                     "'frequency_penalty': "},
        UnfitFeature{"PromptOfIds", false, R"({"prompt":[256,97]})", "'prompt': "},
        UnfitFeature{"TruncatedPrompt", true, R"({"truncate_prompt_tokens":5})",
                     "'truncate_prompt_tokens': "},
        UnfitFeature{"ContinuedMessage", true,
                     R"({"messages":[{"role":"user","content":"a"},
                         {"role":"assistant","content":"the"}],
                         "continue_final_message":true,"add_generation_prompt":false})",
                     "'continue_final_message': the worker does not report token ids"},
        UnfitFeature{"NoGenerationPrompt", true, R"({"add_generation_prompt":false})",
                     "'add_generation_prompt': the worker does not report token ids"},
        UnfitFeature{"LastMessage", true,
                     R"({"messages":[{"role":"user","content":"a"},
                         {"role":"assistant","content":"the"}]})",
                     "'messages': the last one is the assistant's"},
        UnfitFeature{"Tools", true, R"({"tools":[{"type":"function","function":{"name":"f"}}]})",
                     "'tools': the worker parses the calls"},
        UnfitFeature{"SeveralChoices", true, R"({"n":2,"temperature":1})", "'n': several choices"}),
    [](const auto& feature) { return feature.param.name; });

}  // namespace
}  // namespace fo::test
