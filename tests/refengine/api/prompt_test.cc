#include "refengine/api/prompt.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "refengine/model/tokens.h"

namespace fo::refengine {
namespace {

using nlohmann::json;

ModelConfig model_with_bos() { return {.vocab_size = 258, .bos = 256, .eos = {}}; }

std::vector<TokenId> chat_tokens(const json& more = json::object()) {
  json body{{"messages",
             {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "b "}}}}};
  body.update(more);
  return read_chat(body, model_with_bos());
}

std::vector<TokenId> tokens_of(const char* text) { return encode_text(text, model_with_bos()); }

struct RefusedPrompt {
  int status = 200;
  std::string parameter;
  std::string reason;
};

template <typename Parse>
RefusedPrompt refusal_of(const Parse& parse) {
  try {
    parse();
  } catch (const ApiError& error) {
    return {error.status(), error.parameter(), error.what()};
  }
  return {};
}

RefusedPrompt refused_chat(const std::string& messages) {
  const json body = json::parse(R"({"messages":)" + messages + "}");
  return refusal_of([&] { read_chat(body, model_with_bos()); });
}

TEST(Prompt, TextFollowsTheBosUnlessRefused) {
  EXPECT_EQ(read_prompt({{"prompt", "ab"}}, model_with_bos()),
            (std::vector<TokenId>{256, 'a', 'b'}));
  EXPECT_EQ(read_prompt({{"prompt", "ab"}, {"add_special_tokens", false}}, model_with_bos()),
            (std::vector<TokenId>{'a', 'b'}));
  EXPECT_EQ(read_prompt(json::parse(R"({"prompt":[1,2,257]})"), model_with_bos()),
            (std::vector<TokenId>{1, 2, 257}));
}

TEST(Prompt, MessagesBecomeThePagesTemplate) {
  const json messages = json::parse(R"([
    {"role":"system","content":"Be brief."},
    {"role":"user","name":"x","content":[{"type":"text","text":"Hel"},{"type":"text","text":"lo"}]},
    {"role":"assistant","content":""},
    {"role":"developer","content":"d"}])");
  EXPECT_EQ(read_chat({{"messages", messages}}, model_with_bos()),
            tokens_of("system: Be brief.\nuser: Hello\nassistant: \ndeveloper: d\nassistant: "));
}

TEST(Prompt, AChatEndsAsItsFlagsSay) {
  EXPECT_EQ(chat_tokens(), tokens_of("user: a\nassistant: b \nassistant: "));
  EXPECT_EQ(chat_tokens({{"add_generation_prompt", false}}), tokens_of("user: a\nassistant: b \n"));
  EXPECT_EQ(chat_tokens({{"add_generation_prompt", false}, {"continue_final_message", true}}),
            tokens_of("user: a\nassistant: b "));
  std::vector<TokenId> twice = chat_tokens({{"add_special_tokens", true}});
  EXPECT_EQ(twice.front(), 256u);
  twice.erase(twice.begin());
  EXPECT_EQ(twice, chat_tokens());
  const RefusedPrompt both = refusal_of([] { chat_tokens({{"continue_final_message", true}}); });
  EXPECT_EQ(both.parameter, "continue_final_message");
  EXPECT_EQ(both.reason, "continue_final_message needs add_generation_prompt to be false");
}

TEST(Prompt, BadChatsAreRefusedByName) {
  for (const char* messages :
       {"null", "[]", "7", R"("hello")", "[7]", "[{}]", R"([{"role":"user"}])",
        R"([{"role":"user","content":null}])", R"([{"role":"user","content":7}])",
        R"([{"role":7,"content":"a"}])", R"([{"role":"tool","content":"a"}])",
        R"([{"content":"a"}])", R"([{"role":"user","content":["a"]}])",
        R"([{"role":"user","content":[{"type":"image_url","text":"a"}]}])",
        R"([{"role":"user","content":[{"type":"text"}]}])",
        R"([{"role":"user","content":[{"type":"text","text":1}]}])"}) {
    const RefusedPrompt refused = refused_chat(messages);
    EXPECT_EQ(refused.status, 400) << messages;
    EXPECT_EQ(refused.parameter, "messages") << messages;
  }
  EXPECT_EQ(refused_chat(R"([{"role":"user","content":"a"},{"role":"x","content":"a"}])").reason,
            "messages[1]: role is not system, developer, user or assistant");
}

TEST(Prompt, SizesAreLimited) {
  const auto is_refused = [](const json& messages) {
    const json body{{"messages", messages}};
    return refusal_of([&] { read_chat(body, model_with_bos()); }).status == 400;
  };
  const json message{{"role", "user"}, {"content", "a"}};
  EXPECT_FALSE(is_refused(json(kMaxMessages, message)));
  EXPECT_TRUE(is_refused(json(kMaxMessages + 1, message)));
  const json part{{"type", "text"}, {"text", "a"}};
  const auto parts = [&](std::size_t count) {
    return json::array({{{"role", "user"}, {"content", json(count, part)}}});
  };
  EXPECT_FALSE(is_refused(parts(kMaxParts)));
  EXPECT_TRUE(is_refused(parts(kMaxParts + 1)));
}

TEST(Prompt, TextAndChatsAreTokenized) {
  const auto tokenize = [](const json& body) {
    return parse_tokenize(body.dump(), model_with_bos(), "m");
  };
  EXPECT_EQ(tokenize({{"prompt", "ab"}}).tokens, tokens_of("ab"));
  EXPECT_FALSE(tokenize({{"prompt", "ab"}}).return_token_strs);
  EXPECT_TRUE(tokenize({{"prompt", "ab"}, {"return_token_strs", true}}).return_token_strs);
  EXPECT_TRUE(tokenize({{"prompt", ""}, {"add_special_tokens", false}}).tokens.empty());
  EXPECT_EQ(tokenize({{"messages", {{{"role", "user"}, {"content", "a"}}}}}).tokens,
            tokens_of("user: a\nassistant: "));
  const auto refused = [&](const json& body) { return refusal_of([&] { tokenize(body); }); };
  EXPECT_EQ(refused({{"prompt", {1, 2}}}).parameter, "prompt") << "as in vLLM";
  EXPECT_EQ(refused(json::object()).parameter, "prompt");
  EXPECT_EQ(refused({{"prompt", "a"}, {"model", "x"}}).status, 404);
  EXPECT_EQ(refusal_of([] { parse_tokenize("x", model_with_bos(), "m"); }).status, 400);
}

TEST(Prompt, TokensAreDetokenized) {
  const auto detokenize = [](const json& body) {
    return parse_detokenize(body.dump(), model_with_bos(), "m");
  };
  EXPECT_EQ(detokenize({{"model", "m"}, {"tokens", {1, 257}}}), (std::vector<TokenId>{1, 257}));
  EXPECT_TRUE(detokenize({{"tokens", json::array()}}).empty());
  const auto refused = [&](const json& body) { return refusal_of([&] { detokenize(body); }); };
  for (const json& tokens : {json(258), json({258}), json({-1}), json("a"), json()}) {
    EXPECT_EQ(refused({{"tokens", tokens}}).parameter, "tokens") << tokens;
  }
  EXPECT_EQ(refused({{"tokens", {1}}, {"model", "x"}}).status, 404);
}

}  // namespace
}  // namespace fo::refengine
