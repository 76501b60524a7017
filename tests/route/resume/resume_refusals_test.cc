// Each feature of a request whose answer cannot continue: until its first byte it is requested
// again, and after that it ends with an error that says why.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "route/fleet.h"
#include "route/resume/disturbed.h"
#include "route/scripted_worker.h"

namespace fo::test {
namespace {

using nlohmann::json;

struct RefusedFeature {
  const char* name;
  bool is_chat;
  const char* members;
  const char* reason;
};

void PrintTo(const RefusedFeature& feature, std::ostream* out) { *out << feature.members; }

class EachRefusedFeature : public FdCounting, public testing::WithParamInterface<RefusedFeature> {
 protected:
  static route::RouterOptions options() {
    route::RouterOptions options = in_turns();
    options.rules.resume.strict_seed = true;
    return options;
  }
  static oracle::EngineOptions engine() {
    oracle::EngineOptions engine;
    engine.knobs.tool_calls = true;
    return engine;
  }
  static json body() { return long_answer(GetParam().is_chat, json::parse(GetParam().members)); }
  /// The events that brought something of the answer.
  static std::uint64_t events_with_content(const Client& call) {
    std::uint64_t count = 0;
    for (const std::string& data : call->events()) {
      const json event = json::parse(data);
      if (!event.contains("choices")) continue;
      for (const json& choice : event["choices"]) {
        const json& text = choice.contains("delta") ? choice["delta"] : choice;
        const bool has_content = !text.value("content", "").empty() ||
                                 !text.value("text", "").empty() || text.contains("tool_calls");
        count += has_content ? 1 : 0;
      }
    }
    return count;
  }
};

TEST_P(EachRefusedFeature, AStartedStreamEndsWithTheReason) {
  DisturbedFleet fleet(options());
  fleet.add_engines(2, engine());
  const json undisturbed = summary_of(fleet.ask_directly(1, body()));
  const auto asked = fleet.counts(1).requests;
  fleet.fail_next(0, "cut@20");
  Client call = fleet.send_to_router(body());
  if (fleet.counts(0).faults == 0) call = fleet.send_to_router(body());
  const json summary = summary_of(call);
  EXPECT_EQ(summary["status"], 200);
  EXPECT_TRUE(call->is_whole());
  EXPECT_EQ(summary["ends"], 0);
  EXPECT_EQ(summary["error"]["code"], "worker_lost") << call->body();
  EXPECT_NE(call->error_message().find(GetParam().reason), std::string::npos)
      << call->error_message();
  EXPECT_EQ(summary["error"]["delivered_tokens"], events_with_content(call));
  EXPECT_GT(events_with_content(call), 0U);
  for (const auto& [index, choice] : summary["choices"].items()) {
    for (const char* name : {"content", "text"}) {
      const std::string all = undisturbed["choices"][index].value(name, "");
      EXPECT_TRUE(all.starts_with(choice.value(name, ""))) << index;
    }
    EXPECT_FALSE(choice.contains("finish_reason"));
  }
  EXPECT_EQ(fleet.resumes("refused"), "1");
  EXPECT_LE(fleet.counts(1).requests, asked + 1) << "no other worker is asked";
}

TEST_P(EachRefusedFeature, BeforeItsFirstByteAStreamIsRequestedAgain) {
  DisturbedFleet fleet(options());
  fleet.add_engines(2, engine());
  const json undisturbed = summary_of(fleet.ask_directly(1, body()));
  for (const char* fault : {"cut@0", "reset@start"}) {
    EXPECT_EQ(summary_of(fleet.ask_with_fault(body(), fault)), undisturbed) << fault;
  }
  EXPECT_EQ(fleet.resumes("refused"), "0");
}

TEST_P(EachRefusedFeature, AnAnswerInOnePieceIsRequestedAgain) {
  DisturbedFleet fleet(options());
  fleet.add_engines(2, engine());
  const json whole = in_one_piece(body());
  const json undisturbed = summary_of(fleet.ask_directly(1, whole));
  EXPECT_EQ(summary_of(fleet.ask_with_fault(whole, "cut@20")), undisturbed);
  EXPECT_EQ(fleet.resumes("resumed"), "0");
}

// The worker gets the bytes that the client has sent.
TEST_P(EachRefusedFeature, TheRequestIsPassedThroughUntouched) {
  DisturbedFleet fleet(options());
  std::string received;
  ScriptedWorker worker(fleet.executor(), [&](ScriptedWorker::Peer& peer, std::string request) {
    received = request.substr(request.find("\r\n\r\n") + 4);
    return peer.write(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        "data: {\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":\"stop\"},"
        "{\"index\":1,\"text\":\"b\",\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
  });
  fleet.add_worker(worker.url());
  EXPECT_EQ(fleet.send_to_router(body())->status(), 200);
  EXPECT_EQ(received, body().dump());
}

INSTANTIATE_TEST_SUITE_P(
    , EachRefusedFeature,
    testing::Values(
        RefusedFeature{"PresencePenalty", false, R"({"presence_penalty":0.5})",
                       "'presence_penalty': the engine looks only at the tokens"},
        RefusedFeature{"FrequencyPenalty", true, R"({"frequency_penalty":0.5})",
                       "'frequency_penalty': the engine looks only at the tokens"},
        RefusedFeature{"NGrams", false, R"({"no_repeat_ngram_size":3})",
                       "'no_repeat_ngram_size': "},
        RefusedFeature{"RepetitionDetection", true,
                       R"({"repetition_detection":{"max_pattern_size":8}})",
                       "'repetition_detection': the engine looks only at the tokens"},
        RefusedFeature{"SeedWithStrictSeed", true, R"({"temperature":1,"seed":7})",
                       "'seed': the random numbers would start again"},
        RefusedFeature{"LogProbsOfAChat", true, R"({"logprobs":true,"top_logprobs":2})",
                       "log-probs of a chat"},
        RefusedFeature{"JsonSchema", true,
                       R"({"response_format":{"type":"json_schema","json_schema":{"name":"a"}}})",
                       "'response_format': guided decoding"},
        RefusedFeature{"StructuredOutputs", false, R"({"structured_outputs":{"regex":"a+"}})",
                       "'structured_outputs': "},
        RefusedFeature{"GuidedRegex", false, R"({"guided_regex":"a+"})", "'guided_regex': "},
        RefusedFeature{"Ebnf", false, R"({"ebnf":"root ::= \"a\""})", "'ebnf': "},
        RefusedFeature{"Tools", true, R"({"tools":[{"type":"function","function":{"name":"f"}}]})",
                       "'tools': the worker parses the calls"},
        RefusedFeature{"ToolsWithAChoice", true,
                       R"({"tools":[{"type":"function","function":{"name":"f"}}],
                           "tool_choice":"required"})",
                       "'tools': the worker parses the calls"},
        RefusedFeature{"SeveralChoices", true, R"({"n":2,"temperature":1})",
                       "'n': several choices"},
        RefusedFeature{"Images", true,
                       R"({"messages":[{"role":"user","content":[{"type":"image_url",
                           "image_url":{"url":"data:,"}}]}]})",
                       "'messages': a part is not text"},
        RefusedFeature{"Audio", true,
                       R"({"messages":[{"role":"user","content":[{"type":"input_audio",
                           "input_audio":{"data":"","format":"wav"}}]}]})",
                       "'messages': a part is not text"},
        RefusedFeature{"ThinkingBudget", true, R"({"thinking_token_budget":5})",
                       "'thinking_token_budget': "},
        RefusedFeature{"StopRegex", false, R"({"stop_regex":"a+"})", "'stop_regex': "},
        RefusedFeature{"Echo", false, R"({"echo":true})",
                       "'echo': the answer begins with the prompt"},
        RefusedFeature{"WithoutReasoning", true, R"({"include_reasoning":false})",
                       "'include_reasoning': a part of the answer is not sent"},
        RefusedFeature{"PromptLogProbs", false, R"({"prompt_logprobs":1})", "'prompt_logprobs': "},
        RefusedFeature{"Suffix", false, R"({"suffix":"end"})", "'suffix': "},
        RefusedFeature{"SeveralPrompts", false, R"({"prompt":["a","b"]})",
                       "'prompt': several prompts"},
        RefusedFeature{"PromptEmbeds", false, R"({"prompt_embeds":"AAAA"})", "'prompt_embeds': "},
        RefusedFeature{"BestOf", false, R"({"best_of":2})", "'best_of': several choices"},
        RefusedFeature{"Beams", false, R"({"use_beam_search":true})", "'use_beam_search': beams"},
        RefusedFeature{"AnUnknownField", true, R"({"of_next_year":1})",
                       "'of_next_year': a continuation cannot have it"}),
    [](const auto& feature) { return feature.param.name; });

}  // namespace
}  // namespace fo::test
