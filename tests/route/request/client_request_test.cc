#include "route/request/client_request.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fo::test {
namespace {

using nlohmann::json;
using route::Api;
using route::ClientRequest;
using route::find_key;
using route::RequestRules;
using namespace std::string_literals;

http::Request post(std::string body, http::Fields headers = {}) {
  http::Request request;
  request.method = "POST";
  request.target = request.path = "/v1/chat/completions";
  request.headers = std::move(headers);
  request.body = std::move(body);
  return request;
}

/// `request` must outlive the result.
ClientRequest read(const http::Request& request, Api api = Api::kChat,
                   const RequestRules& rules = {}) {
  route::ReadRequest result = route::read_request(request, api, rules);
  EXPECT_TRUE(result.request.has_value()) << result.refusal.message;
  return result.request.value_or(ClientRequest());
}

ClientRequest read_body(const std::string& body, Api api = Api::kChat) {
  ClientRequest request = read(post(body), api);
  request.body = {};
  return request;
}

route::ApiError refusal_of(const http::Request& request, Api api = Api::kChat,
                           const RequestRules& rules = {}) {
  const route::ReadRequest result = route::read_request(request, api, rules);
  EXPECT_FALSE(result.request.has_value()) << request.body.substr(0, 100);
  EXPECT_EQ(result.refusal.status, 400);
  EXPECT_NE(result.refusal.message, "");
  return result.refusal;
}

TEST(ReadRequest, ReadsWhatTheRouterNeeds) {
  http::Request from = post(
      R"({"model":"m","stream":true,"max_tokens":7,"n":3,"messages":[{"role":"user","content":"12345"}]})");
  from.target = "/v1/chat/completions?a=%20b";
  const ClientRequest request = read(from);
  EXPECT_EQ(request.api, Api::kChat);
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.target, from.target);
  EXPECT_EQ(request.body, from.body);
  EXPECT_EQ(request.model, "m");
  EXPECT_TRUE(request.is_streamed);
  EXPECT_EQ(request.choices, 3U);
  EXPECT_EQ(request.max_tokens, 21U);
  EXPECT_EQ(request.prefix, "user12345");
  EXPECT_EQ(request.prompt_tokens, 3U);
}

TEST(ReadRequest, FieldsMayBeMissingOrNull) {
  for (const char* body :
       {"{}", R"({"model":null,"stream":null,"n":null,"max_tokens":null,"messages":null})"}) {
    const ClientRequest request = read_body(body);
    EXPECT_EQ(request.model, "");
    EXPECT_FALSE(request.is_streamed);
    EXPECT_EQ(request.choices, 1U);
    EXPECT_FALSE(request.max_tokens);
    EXPECT_EQ(request.prompt_tokens, 0U);
  }
}

TEST(ReadRequest, RefusesWhatIsNotAnObject) {
  for (const std::string& body : {""s,
                                  " "s,
                                  "rubbish"s,
                                  "null"s,
                                  "1"s,
                                  "[]"s,
                                  "\"text\""s,
                                  "{"s,
                                  "{}{}"s,
                                  "{}\0"s,
                                  "{\"a\":NaN}"s,
                                  "{\"a\":1e999}"s,
                                  "{'a':1}"s,
                                  "{\"a\":1,}"s,
                                  "{\"a\":\"\xc3\"}"s,
                                  "{\"a\":\"\xff\"}"s,
                                  "{\"a\":\"\\ud800\"}"s,
                                  "{\"a\":\"\n\"}"s,
                                  "{\"a\":\"\\u00\"}"s,
                                  std::string(1'000'000, '['),
                                  R"({"a":)" + std::string(100, '[') + std::string(100, ']') + "}",
                                  "\xff\xfe{\0}\0"s,
                                  "\xef\xbb\xbf{}"s}) {
    refusal_of(post(body));
  }
}

TEST(ReadRequest, RefusesEachFieldOfAWrongType) {
  const std::vector<std::string> values{"true",
                                        "1",
                                        "-1",
                                        "1.5",
                                        "1e300",
                                        "\"1\"",
                                        "[]",
                                        "[1]",
                                        "{}",
                                        "\"\"",
                                        "18446744073709551616"};
  struct Field {
    const char* name;
    bool (*is_valid)(const json&);
  };
  const auto is_text = [](const json& value) { return value.is_string(); };
  const auto is_count = [](const json& value) { return value.is_number_unsigned(); };
  const auto is_flag = [](const json& value) { return value.is_boolean(); };
  for (const Field& field :
       {Field{"model", is_text}, Field{"previous_response_id", is_text}, Field{"stream", is_flag},
        Field{"n", is_count}, Field{"max_tokens", is_count}, Field{"max_output_tokens", is_count},
        Field{"max_completion_tokens", is_count}}) {
    for (const std::string& value : values) {
      const std::string body = "{\"" + std::string(field.name) + "\":" + value + "}";
      if (field.is_valid(json::parse(value))) {
        read_body(body);
      } else {
        EXPECT_EQ(refusal_of(post(body)).param, field.name) << body;
      }
    }
  }
}

TEST(ReadRequest, OfDuplicateKeysTheLastOneCountsAsInPython) {
  EXPECT_EQ(read_body(R"({"model":"a","model":"b"})").model, "b");
  EXPECT_FALSE(read_body(R"({"stream":true,"stream":false})").is_streamed);
  EXPECT_EQ(refusal_of(post(R"({"stream":false,"stream":1})")).param, "stream");
}

TEST(ReadRequest, AModelHasAShortName) {
  EXPECT_EQ(read_body(R"({"model":")" + std::string(256, 'm') + "\"}").model.size(), 256U);
  EXPECT_EQ(refusal_of(post(R"({"model":")" + std::string(257, 'm') + "\"}")).param, "model");
  EXPECT_EQ(read_body(R"({"model":"a\u0000b"})").model, "a\0b"s);
}

TEST(ReadRequest, RefusesFieldsOfAnEnginesInsides) {
  for (const std::string name :
       {"priority", "kv_transfer_params", "ec_transfer_params", "bootstrap_host", "bootstrap_room",
        "bootstrap_", "dp_rank", "routed_dp_rank", "disagg_prefill_dp_rank", "data_parallel_rank",
        "rid", "request_id", "session_params", "custom_logit_processor", "custom_params",
        "lora_path", "return_hidden_states"}) {
    for (const char* value : {"1", "null", "{}"}) {
      const std::string field = "\"" + name + "\":" + value;
      for (const std::string& body : {"{" + field + "}", "{\"vllm_xargs\":{" + field + "}}",
                                      "{" + field + "," + field + "}"}) {
        const route::ApiError refusal = refusal_of(post(body));
        EXPECT_EQ(refusal.param, name);
        EXPECT_EQ(refusal.code, "field_refused");
        const http::Request request = post(body);
        read(request, Api::kChat, {.allowed_fields = {"x", name}});
      }
    }
  }
  EXPECT_EQ(refusal_of(post(R"({"prior\u0069ty":1})")).param, "priority");
  for (const char* body : {R"({"Priority":1})", R"({"metadata":{"priority":1}})",
                           R"({"vllm_xargs":["priority"]})", R"({"rids":1})"}) {
    read_body(body);
  }
}

http::Request with_key(const std::string& key, const std::string& body = "{}",
                       const std::string& path = "/v1/chat/completions") {
  http::Request request = post(body, {{"authorization", "Bearer " + key}});
  request.target = request.path = path;
  return request;
}

// A member of the body that the worker gets; empty if it has none.
std::string member(const http::Request& from, const char* name, const RequestRules& rules) {
  const json body = json::parse(read(from, Api::kChat, rules).body);
  return body.contains(name) ? body[name].dump() : "";
}

const RequestRules kSalted{.salt_by_key = true};

TEST(ReadRequest, EachKeyHasASaltOfItsOwn) {
  const std::string salt = member(with_key("a"), "cache_salt", kSalted);
  // printf %s cache_salt:a | sha256sum
  EXPECT_EQ(salt, "\"b564b8d07aef9527cd0d30b585e51f9583c23a4202054711c09aab1de745cd04\"");
  EXPECT_EQ(member(with_key("a", R"({"cache_salt":null})"), "cache_salt", kSalted), salt);
  EXPECT_EQ(member(post("{}", {{"x-api-key", "a"}}), "cache_salt", kSalted), salt);
  EXPECT_EQ(member(with_key("b"), "cache_salt", kSalted).size(), salt.size());
  EXPECT_NE(member(with_key("b"), "cache_salt", kSalted), salt);
  EXPECT_EQ(member(with_key("a"), "cache_salt", {}), "");
  EXPECT_EQ(member(post("{}"), "cache_salt", kSalted), "");
}

TEST(ReadRequest, AClientsSaltIsKept) {
  // The worker refuses what is no salt.
  for (const char* salt : {R"("mine")", R"("")", "1"}) {
    const std::string body = "{\"cache_salt\":" + std::string(salt) + "}";
    EXPECT_EQ(member(with_key("a", body), "cache_salt", kSalted), salt);
  }
}

TEST(ReadRequest, SaltsAreForThePathsAtWhichEnginesReadThem) {
  const auto is_salted = [](const std::string& path) {
    return !member(with_key("a", "{}", path), "cache_salt", kSalted).empty();
  };
  for (const char* path : {"/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/score"}) {
    EXPECT_TRUE(is_salted(path)) << path;
  }
  for (const char* path : {"/v1/messages", "/tokenize", "/v1/audio/speech", "/pooling"}) {
    EXPECT_FALSE(is_salted(path)) << path;
  }
}

TEST(ReadRequest, TheTierIsThePriorityUnlessTheClientMaySetIt) {
  const auto priority = [](const char* body, std::size_t tier, RequestRules rules) {
    rules.priority_by_tier = true;
    const http::Request from = with_key("a", body);
    const auto result = route::read_request(from, Api::kChat, rules, tier).request;
    if (!result) return "refused"s;
    return json::parse(result->body).value("priority", json()).dump();
  };
  EXPECT_EQ(priority("{}", plan::kPremium, {}), "0");
  EXPECT_EQ(priority("{}", plan::kStandard, {}), "1");
  EXPECT_EQ(priority("{}", plan::kBestEffort, {}), "2");
  EXPECT_EQ(priority(R"({"priority":-1})", plan::kStandard, {}), "refused");
  const RequestRules allowed{.allowed_fields = {"priority"}};
  EXPECT_EQ(priority(R"({"priority":-1})", plan::kStandard, allowed), "-1");
  EXPECT_EQ(priority(R"({"priority":null})", plan::kStandard, allowed), "1");
  EXPECT_EQ(member(with_key("a"), "priority", {}), "");
}

TEST(ReadRequest, PromptsWithDifferentSaltsHaveNoCommonPrefix) {
  const std::string body = R"({"prompt":"12345678"})";
  const http::Request from = with_key("a", body);
  const ClientRequest request = read(from, Api::kChat, kSalted);
  EXPECT_TRUE(request.prefix.ends_with("12345678"));
  EXPECT_EQ(request.prefix.size(), 64U + 8);
  EXPECT_EQ(request.prompt_tokens, 2U);
  EXPECT_EQ(read_body(R"({"prompt":"1234","cache_salt":"s"})").prefix, "s1234");
  const std::string salt(route::kPrefixBytes + 1, 's');
  EXPECT_EQ(read_body(R"({"prompt":"1234","cache_salt":")" + salt + "\"}").prefix.size(),
            route::kPrefixBytes);
}

TEST(ReadRequest, ARefusalIsShort) {
  const std::string name = "bootstrap_" + std::string(1'000'000, 'x');
  const route::ApiError refusal = refusal_of(post("{\"" + name + "\":1}"));
  EXPECT_LT(refusal.message.size() + refusal.param.size(), 1000U);
}

TEST(ReadRequest, CountsThePromptOfEachApi) {
  struct Case {
    const char* body;
    std::uint64_t tokens;
    const char* prefix;
  };
  for (const Case& a_case : {
           Case{R"({"prompt":"12345678"})", 2, "12345678"},
           Case{R"({"prompt":["1234","5678"]})", 2, "12345678"},
           Case{R"({"prompt":[1,22,333]})", 3, "1 22 333 "},
           Case{R"({"prompt":[[1],[2]]})", 2, "1 2 "},
           Case{R"({"input":"1234"})", 1, "1234"},
           Case{R"({"system":"1234","messages":[{"role":"user","content":"5678"}]})", 3,
                "1234user5678"},
           Case{R"({"instructions":"12","input":[{"type":"message","role":"user","content":)"
                R"([{"type":"input_text","text":"34"}]}]})",
                2, "12user34"},
           Case{R"({"query":"1234","documents":["5678",{"text":"9"}]})", 3, "123456789"},
           Case{R"({"text_1":"1234","text_2":["5678"]})", 2, "12345678"},
           // Two parts are not text.
           Case{R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":)"
                R"({"url":"data:0000"}},{"type":"text","text":"12"},{"type":"input_audio"}]}]})",
                3002, "user12"},
           // A call and its result are text.
           Case{R"({"input":[{"type":"function_call","arguments":"1234"},)"
                R"({"type":"function_call_output","output":"5678"}]})",
                2, "12345678"},
           // So is the description of a tool.
           Case{R"({"tools":[{"type":"function","function":{"name":"f"}}]})", 3, R"({"name":"f"})"},
           Case{R"({"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}]})",
                6, R"(assistant[{"id":"1"}])"},
           Case{R"({"messages":[[[["1234"]]],null,true,{"content":{"content":"5"}}]})", 2, "12345"},
           Case{R"({"unknown":"1234"})", 0, ""},
       }) {
    const ClientRequest request = read_body(a_case.body);
    EXPECT_EQ(request.prompt_tokens, a_case.tokens) << a_case.body;
    EXPECT_EQ(request.prefix, a_case.prefix) << a_case.body;
  }
}

TEST(ReadRequest, CountsTheChoices) {
  EXPECT_EQ(read_body(R"({"prompt":["a","b"],"n":2,"max_tokens":5})", Api::kCompletions).choices,
            4U);
  EXPECT_EQ(read_body(R"({"prompt":["a","b"],"n":2,"max_tokens":5})", Api::kCompletions).max_tokens,
            20U);
  EXPECT_EQ(read_body(R"({"prompt":[[1,2],[3]]})", Api::kCompletions).choices, 2U);
  EXPECT_EQ(read_body(R"({"prompt":[1,2,3]})", Api::kCompletions).choices, 1U);
  EXPECT_EQ(read_body(R"({"prompt":[]})", Api::kCompletions).choices, 1U);
  EXPECT_EQ(read_body(R"({"n":0})").choices, 1U);
  EXPECT_EQ(read_body(R"({"prompt":["a","b"],"n":2})", Api::kChat).choices, 2U);
  // The newer name of a limit counts.
  EXPECT_EQ(read_body(R"({"max_tokens":5,"max_completion_tokens":6})").max_tokens, 6U);
  const ClientRequest huge = read_body(
      R"({"prompt":["a","b"],"n":18446744073709551615,"max_tokens":18446744073709551615})",
      Api::kCompletions);
  EXPECT_EQ(huge.choices, 1'000'000'000U);
  EXPECT_EQ(huge.max_tokens, 1'000'000'000U);
}

TEST(ReadRequest, ALongPromptIsCountedAndItsBeginningKept) {
  const std::string text(16 * base::kMiB, 'x');
  const ClientRequest request = read_body(R"({"prompt":")" + text + "\"}");
  EXPECT_EQ(request.prompt_tokens, 4 * base::kMiB);
  EXPECT_EQ(request.prefix, text.substr(0, route::kPrefixBytes));
  std::string numbers = "1";
  for (int i = 1; i < 100'000; ++i) numbers += ",1";
  const ClientRequest of_numbers = read_body(R"({"prompt":[)" + numbers + "]}");
  EXPECT_EQ(of_numbers.prompt_tokens, 100'000U);
  EXPECT_EQ(of_numbers.prefix.size(), route::kPrefixBytes);
}

TEST(ReadRequest, OfTheHeadersFewGoOn) {
  const http::Request from = post("{}", {{"Content-Type", "application/json"},
                                         {"Authorization", "Bearer k"},
                                         {"x-api-key", "k"},
                                         {"Cookie", "c"},
                                         {"TraceParent", "00-1"},
                                         {"X-Forwarded-For", "1.2.3.4"},
                                         {"Accept-Encoding", "gzip"},
                                         {"Host", "h"}});
  http::Fields expected{{"content-type", "application/json"}, {"traceparent", "00-1"}};
  const std::pair<std::string, std::string> identity{"accept-encoding", "identity"};
  http::Fields with_key = expected;
  expected.push_back(identity);
  EXPECT_EQ(read(from).headers, expected);
  with_key.insert(with_key.end(), {{"authorization", "Bearer k"}, identity});
  EXPECT_EQ(read(from, Api::kChat, {.allowed_fields = {}, .pass_authorization = true}).headers,
            with_key);
}

// The default of curl is the type of an HTML form, which engines refuse.
TEST(ReadRequest, AJsonBodyIsSentWithItsType) {
  for (const http::Fields& headers :
       {http::Fields(), http::Fields{{"Content-Type", "application/x-www-form-urlencoded"}}}) {
    const http::Request from = post("{}", headers);
    const std::pair<std::string, std::string> type{"content-type", "application/json"};
    EXPECT_EQ(read(from).headers.front(), type);
  }
}

TEST(ReadRequest, AnIdOfTheClientIsPlain) {
  const auto id_of = [](const std::string& id) {
    const http::Request request = post("{}", {{"X-Request-Id", id}});
    return read(request).client_id;
  };
  EXPECT_EQ(id_of("aZ0._-"), "aZ0._-");
  EXPECT_EQ(id_of(std::string(64, 'a')), std::string(64, 'a'));
  for (const std::string& id : {""s, std::string(65, 'a'), "a b"s, "a/b"s, "\xc3\xa9"s, "a\0"s}) {
    EXPECT_EQ(id_of(id), "") << id;
  }
}

TEST(ReadRequest, ATimeoutIsADurationOrANumberOfSeconds) {
  const auto timeout_of = [](const std::string& time) {
    const http::Request request = post("{}", {{"x-request-timeout", time}});
    return read(request).timeout;
  };
  EXPECT_EQ(timeout_of("30"), std::chrono::seconds(30));
  EXPECT_EQ(timeout_of("1.5"), std::chrono::milliseconds(1500));
  EXPECT_EQ(timeout_of("250ms"), std::chrono::milliseconds(250));
  EXPECT_EQ(timeout_of("0"), std::chrono::seconds(0));
  for (const char* time : {"", "-1", "soon", "1e9", "99999999999999999999", "1 s", "0x10", "inf"}) {
    refusal_of(post("{}", {{"x-request-timeout", time}}));
  }
}

TEST(ReadRequest, AnEarlierResponseIsNamed) {
  EXPECT_EQ(read_body(R"({"previous_response_id":"resp_1"})", Api::kResponses).previous_response,
            "resp_1");
}

std::string part(const std::string& head, const std::string& value) {
  return "--b\r\nContent-Disposition: form-data; " + head + "\r\n\r\n" + value + "\r\n";
}

constexpr char kFormType[] = "multipart/form-data; boundary=b";

http::Request form(const std::string& parts, const std::string& type = "boundary=b") {
  return post(parts + "--b--\r\n", {{"Content-Type", "Multipart/Form-Data; " + type}});
}

TEST(ReadRequest, OfAFormTheModelIsRead) {
  const std::string sound = part("name=\"file\"; filename=\"a.wav\"", "RIFF\0\r\n\xff"s);
  const auto model_of = [](const http::Request& request) {
    return read(request, Api::kOther).model;
  };
  EXPECT_EQ(model_of(form(sound + part("name=\"model\"", "whisper"))), "whisper");
  EXPECT_EQ(model_of(form(part("name=\"model\"", "whisper") + sound)), "whisper");
  EXPECT_EQ(model_of(form(part("NAME=model", "w"), "charset=x; BOUNDARY=\"b\"; a=b")), "w");
  EXPECT_EQ(model_of(form(part("name=\"model\"\r\nContent-Type: text/plain", "w"))), "w");
  EXPECT_EQ(model_of(form(sound)), "");
  EXPECT_EQ(model_of(post("", {{"content-type", "multipart/form-data; boundary=b"}})), "");
  // The value of another field is not searched.
  EXPECT_EQ(model_of(form(part("name=\"prompt\"", "; name=\"model\"\r\n\r\nother\r\n") +
                          part("name=\"model\"", "whisper"))),
            "whisper");
  EXPECT_EQ(model_of(form(part("name=\"models\"", "other"))), "");
}

TEST(ReadRequest, OfAFormTheBoundaryIsTheParameterOfThisName) {
  const http::Request request =
      form(part("name=model", "w"), "xboundary=a; a=\"; boundary=c\"; boundary=b");
  EXPECT_EQ(read(request, Api::kOther).model, "w");
}

TEST(ReadRequest, RefusesInnerFieldsInForms) {
  for (const std::string& inner : {part("name=\"priority\"", "0"), part("name=Request_Id", "abc"),
                                   part("name=vllm_xargs", R"({"kv_transfer_params":{"a":1}})"),
                                   part("name=vllm_xargs", "x")}) {
    refusal_of(form(inner), Api::kOther);
  }
  RequestRules rules;
  rules.allowed_fields = {"priority"};
  EXPECT_EQ(read(form(part("name=priority", "0")), Api::kOther, rules).model, "");
}

TEST(ReadRequest, RefusesAFormThatMayNameAnotherModel) {
  const std::string model = part("name=\"model\"", "w");
  const std::string other = part("name=\"model\"", "other");
  for (const http::Request& request :
       {form(model + model), form(model + part("name=model", "other")),
        form(model + part("name*=utf-8''%6dodel", "other")), form(model, "bound=b"),
        form(part("name=\"model\"", std::string(257, 'm'))),
        // Parsers may choose different boundaries.
        form(model, "xboundary=a; boundary=b; boundary=c"), form(model, "boundary=b; boundary*=c"),
        form(model, "boundary=\"b\\b\""), form(model, "a=\"b; boundary=b"),
        form(model, "boundary=" + std::string(71, 'b')), form(model, "boundary=b b"),
        // They may find other parts, or other names of them.
        form("--bb\r\n" + other + model), form("preamble\r\n" + model),
        form(part("\r\n name=model", "other")), form(part("name=\"mod\\el\"", "other")),
        form(part("name=a\r\nContent-Disposition: form-data; name=model", "other")),
        form(part("name=a\nX: b", "other")), post(model, {{"content-type", kFormType}})}) {
    refusal_of(request, Api::kOther);
  }
  // Forms are for audio.
  for (const Api api : {Api::kChat, Api::kCompletions, Api::kResponses}) {
    refusal_of(form(model), api);
  }
  refusal_of(post(R"({"priority":1})", {{"content-type", "multipart/form-data; boundary=b"}}));
}

TEST(ReadRequest, OnlyAPostHasABody) {
  http::Request request = post("rubbish");
  request.method = "GET";
  EXPECT_EQ(read(request, Api::kOther).body, "rubbish");
  request.method = "POST";
  read(request, Api::kResponse);
  refusal_of(request, Api::kOther);
}

TEST(FindKey, IsInEitherHeader) {
  EXPECT_EQ(find_key(post("")), std::nullopt);
  EXPECT_EQ(find_key(post("", {{"authorization", "Bearer abc"}})), "abc");
  EXPECT_EQ(find_key(post("", {{"Authorization", "bEARER abc"}})), "abc");
  EXPECT_EQ(find_key(post("", {{"X-Api-Key", "abc"}})), "abc");
  for (const char* value : {"", "Bearer", "Bearer ", "Basic abc", "abc"}) {
    // Such a header is an unknown key, even beside a valid one.
    EXPECT_EQ(find_key(post("", {{"authorization", value}, {"x-api-key", "abc"}})), "") << value;
  }
}

TEST(ReadRequest, TheEstimateOfAPromptCanBeSet) {
  const http::Request from =
      post(R"({"messages":[{"content":[{"type":"image_url"},{"type":"text","text":"123456"}]}]})");
  EXPECT_EQ(read(from).prompt_tokens, 1502U);
  const RequestRules rules{.bytes_per_token = 2, .tokens_per_part = 10};
  EXPECT_EQ(read(from, Api::kChat, rules).prompt_tokens, 13U);
}

}  // namespace
}  // namespace fo::test
