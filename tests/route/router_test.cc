#include "route/router.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "fleet/card/digest.h"
#include "http/support.h"
#include "plan/degradation.h"
#include "route/fleet.h"
#include "route/scripted_worker.h"

namespace fo::test {
namespace {

using nlohmann::json;

class Router : public FdCounting {};

/// A whole answer in JSON, after which the worker closes the connection.
std::string json_answer(const std::string& body, const std::string& headers = "") {
  return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

TEST_F(Router, AnAnswerIsThatOfTheEngine) {
  Fleet fleet(1);
  const std::string text = fleet.text_of(chat(false));
  ASSERT_FALSE(text.empty());
  for (const bool is_streamed : {false, true}) {
    const Client call = fleet.ask(chat(is_streamed));
    EXPECT_EQ(call->status(), 200);
    EXPECT_TRUE(call->is_whole());
    EXPECT_EQ(call->text(), text);
    if (is_streamed) {
      EXPECT_EQ(call->events().back(), "[DONE]");
    }
  }
}

TEST_F(Router, NamesTheModelsOfItsWorkers) {
  Fleet fleet(1);
  const Client list = fleet.get("/v1/models");
  EXPECT_EQ(list->status(), 200);
  ASSERT_EQ(list->json()["data"].size(), 1U);
  EXPECT_EQ(list->json()["data"][0]["id"], "oracle");
  EXPECT_EQ(fleet.get("/v1/models/oracle")->json()["id"], "oracle");
  EXPECT_EQ(fleet.get("/v1/models/another")->status(), 404);
}

TEST_F(Router, AnUnknownModelIs404WithTheNearestName) {
  Fleet fleet(1);
  json body = chat(false);
  body["model"] = "oracel";
  const Client call = fleet.ask(body);
  EXPECT_EQ(call->status(), 404);
  EXPECT_EQ(call->error_code(), "model_not_found");
  EXPECT_NE(call->error_message().find("did you mean 'oracle'?"), std::string::npos);
  EXPECT_EQ(fleet.counts(0).requests, 0U);
}

TEST_F(Router, PathsThatControlAnEngineAreNotServed) {
  Fleet fleet(1);
  for (const char* path :
       {"/sleep", "/wake_up", "/v1/load_lora_adapter", "/update_weights_from_disk",
        "/release_memory_occupation", "/collective_rpc", "/oracle", "/v1/../sleep",
        "/v1/%2e%2e/sleep", "//sleep", "/metrics", "/"}) {
    const Client call = fleet.ask(json::object(), path);
    EXPECT_EQ(call->status(), 404) << path;
    EXPECT_EQ(call->error_code(), "unknown_path") << path;
    EXPECT_EQ(fleet.get(path)->status(), 404) << path;
  }
  const Client wrong = fleet.get("/v1/chat/completions");
  EXPECT_EQ(wrong->status(), 405);
  EXPECT_EQ(wrong->header("allow"), "POST");
  EXPECT_EQ(fleet.ask(chat(false))->status(), 200);
}

TEST_F(Router, FieldsOfTheEnginesInsidesAreRefused) {
  Fleet fleet(1);
  for (const char* field :
       {"priority", "kv_transfer_params", "bootstrap_host", "bootstrap_room", "rid", "lora_path",
        "data_parallel_rank", "session_params", "custom_logit_processor"}) {
    json body = chat(false);
    body[field] = 1;
    const Client call = fleet.ask(body);
    EXPECT_EQ(call->status(), 400) << field;
    EXPECT_EQ(call->error_code(), "field_refused") << field;
    EXPECT_EQ(call->json()["error"]["param"], field);
  }
  EXPECT_EQ(fleet.counts(0).requests, 0U);
}

TEST_F(Router, OtherEndpointsArePassedThrough) {
  Fleet fleet(1);
  const json prompt{{"model", "oracle"}, {"prompt", "Which way?"}};
  const Client tokens = fleet.ask(prompt, "/tokenize");
  ASSERT_EQ(tokens->status(), 200);
  const json ids{{"model", "oracle"}, {"tokens", tokens->json()["tokens"]}};
  const Client text = fleet.ask(ids, "/detokenize");
  EXPECT_NE(text->json()["prompt"].get<std::string>().find("Which way?"), std::string::npos);
}

TEST_F(Router, AnEndpointThatTheEnginesDoNotHaveIsTheClientsError) {
  Fleet fleet(2);
  const json input{{"model", "oracle"}, {"input", "Which way?"}};
  for (const char* path : {"/v1/audio/speech", "/v1/audio/translations"}) {
    EXPECT_EQ(fleet.ask(input, path)->status(), 404) << path;
  }
  // An API that is not there takes no worker away from those that are.
  for (int i = 0; i < 4; ++i) EXPECT_EQ(fleet.ask(chat(false))->status(), 200);
}

TEST_F(Router, OnlyHeadersOfTheEndsAreForwarded) {
  route::RouterOptions options = in_turns();
  options.worker_headers = {{"authorization", "Bearer engine-key"}};
  Fleet fleet(std::move(options));
  std::string received;
  ScriptedWorker worker(
      fleet.executor(), [&received](ScriptedWorker::Peer& peer, std::string request) {
        received = std::move(request);
        return peer.write(
            json_answer("{}",
                        "Connection: keep-alive, x-inner\r\nX-Inner: 1\r\nX-Outer: 1\r\n"
                        "Keep-Alive: timeout=5\r\nServer: engine\r\nX-Request-Id: e\r\n"));
      });
  fleet.add_worker(worker.url());
  const Client call = fleet.ask(chat(false), "/v1/chat/completions",
                                {{"authorization", "Bearer client-key"},
                                 {"cookie", "a=b"},
                                 {"traceparent", "00-1-2-01"},
                                 {"x-request-id", "mine-1"}});
  EXPECT_EQ(call->status(), 200);
  EXPECT_EQ(call->header("x-outer"), "1");
  EXPECT_EQ(call->header("x-inner"), "-");
  EXPECT_EQ(call->header("keep-alive"), "-");
  EXPECT_EQ(call->header("server"), "-");
  EXPECT_EQ(call->header("x-request-id"), "mine-1");
  EXPECT_NE(call->header("x-fo-request-id"), "-");
  EXPECT_NE(received.find("authorization: Bearer engine-key\r\n"), std::string::npos) << received;
  EXPECT_NE(received.find("x-request-id: " + call->header("x-fo-request-id") + "\r\n"),
            std::string::npos);
  EXPECT_NE(received.find("x-fo-attempt: 1\r\n"), std::string::npos);
  EXPECT_NE(received.find("accept-encoding: identity\r\n"), std::string::npos);
  EXPECT_NE(received.find("traceparent: 00-1-2-01\r\n"), std::string::npos);
  EXPECT_EQ(received.find("client-key"), std::string::npos);
  EXPECT_EQ(received.find("cookie"), std::string::npos);
}

TEST_F(Router, AnInvalidRequestIdOfAClientIsReplaced) {
  Fleet fleet(1);
  const Client call =
      fleet.ask(chat(true), "/v1/chat/completions", {{"x-request-id", "not valid"}});
  EXPECT_EQ(call->header("x-request-id"), call->header("x-fo-request-id"));
  EXPECT_EQ(call->header("x-fo-request-id").size(), 24U);
}

TEST_F(Router, ARequestThatNoWorkerGetsCostsItsKeyNoTokens) {
  route::RouterOptions options = in_turns();
  options.dispatch.queue.timeout = std::chrono::milliseconds(1);
  options.keys.emplace();
  (*options.keys)[fleet::sha256_hex("k")] = {.tokens_per_minute = 100};
  Fleet fleet(1, std::move(options));
  json body = chat(false, 4);
  body["messages"][0]["content"] = std::string(200, 'x');
  const auto ask = [&] {
    const http::Fields key{{"authorization", "Bearer k"}};
    return fleet.ask(body, "/v1/chat/completions", key)->status();
  };
  fleet.worker(0).is_drained = true;
  fleet.router().on_change();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask(), 503);
  fleet.worker(0).is_drained = false;
  fleet.router().on_change();
  EXPECT_EQ(ask(), 200);
  int answered = 1;
  while (ask() == 200) ASSERT_LT(++answered, 100) << "the key has no limit";
}

TEST_F(Router, ItsOwnAnswersHaveIdsAndTheLevelAndAreCounted) {
  route::RouterOptions options = in_turns();
  options.keys.emplace();
  (*options.keys)[fleet::sha256_hex("k")] = {.tier = plan::kStandard, .requests_per_minute = 1};
  Fleet fleet(std::move(options));
  const auto expect = [&](const json& body, const std::string& path, const std::string& key,
                          const std::string& model, int status, const std::string& tier) {
    const Client call =
        fleet.ask(body, path, {{"x-request-id", "mine"}, {"authorization", "Bearer " + key}});
    EXPECT_EQ(call->status(), status) << path;
    EXPECT_EQ(call->header("x-request-id"), "mine");
    EXPECT_EQ(call->header("x-fo-request-id").size(), 24U);
    EXPECT_EQ(call->header("x-fo-level"), "0");
    const std::string series = "fo_route_requests_total{model=\"" + model + "\",code=\"" +
                               std::to_string(status) + "\",tier=\"" + tier + "\"} 1\n";
    EXPECT_NE(fleet.router().metrics_text().find(series), std::string::npos) << series;
  };
  const std::string chats = "/v1/chat/completions";
  expect(chat(true), chats, "k", "", 503, "standard");
  fleet.add_engine();
  expect(nullptr, "/sleep", "k", "", 404, "");
  expect(nullptr, chats, "k", "", 405, "");
  expect(nullptr, "/v1/models", "k", "", 200, "standard");
  expect(nullptr, "/v1/models/another", "k", "", 404, "standard");
  expect(chat(true), chats, "another", "", 401, "");
  expect(json::array(), chats, "k", "", 400, "standard");
  expect(chat(true), chats, "k", "oracle", 200, "standard");
  expect(chat(true), chats, "k", "oracle", 429, "standard");
}

/// The answer to these bytes, until the connection ends.
std::string answer_to_bytes(Fleet& fleet, const std::string& bytes) {
  const http::test::RawClient client(fleet.port());
  client.send(bytes);
  std::string answer;
  fleet.run_until([&] {
    char buffer[4096];
    const ssize_t count = ::recv(client.fd(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (count > 0) answer.append(buffer, static_cast<std::size_t>(count));
    return count == 0;
  });
  return answer;
}

/// Checks an answer to a request that the router could not read, and how often it was counted.
void expect_early(Fleet& fleet, const std::string& answer, const std::string& status,
                  const std::string& client_id, const std::string& code, int count) {
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 " + status)) << answer;
  const std::size_t body = answer.find("\r\n\r\n") + 4;
  const json error = json::parse(answer.substr(body), nullptr, false)["error"];
  EXPECT_EQ(error.size(), 4U) << answer;
  EXPECT_EQ(error["code"], code);
  EXPECT_TRUE(error["param"].is_null());
  const auto id_at = answer.find("\r\nx-fo-request-id: ");
  ASSERT_NE(id_at, std::string::npos) << answer;
  const std::string own_id = answer.substr(id_at + 19, 24);
  const std::string id = client_id.empty() ? own_id : client_id;
  EXPECT_NE(answer.find("\r\nx-request-id: " + id + "\r\n"), std::string::npos) << answer;
  EXPECT_NE(answer.find("\r\nx-fo-level: 0\r\n"), std::string::npos) << answer;
  const std::string series = "fo_route_requests_total{model=\"\",code=\"" + status +
                             "\",tier=\"\"} " + std::to_string(count) + "\n";
  EXPECT_NE(fleet.router().metrics_text().find(series), std::string::npos) << series;
}

TEST_F(Router, RequestsThatItCannotReadHaveIdsAndTheLevelAndAreCounted) {
  http::ServerLimits limits;
  limits.body_bytes = 1000;
  Fleet fleet(in_turns(), quick_checks(), limits);
  const std::string post = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nx-request-id: mine\r\n";
  const auto expect = [&](const std::string& bytes, const std::string& status,
                          const std::string& client_id, const std::string& code, int count) {
    expect_early(fleet, answer_to_bytes(fleet, bytes), status, client_id, code, count);
  };
  expect(post + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", "400", "",
         "malformed_request", 1);
  expect("rubbish\r\n\r\n", "400", "", "malformed_request", 2);
  expect(post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "400", "mine", "malformed_request", 3);
  expect(post + "Content-Length: 1001\r\n\r\n", "413", "mine", "body_too_long", 1);
  expect(post + "X: " + std::string(20'000, 'x') + "\r\n\r\n", "431", "", "headers_too_long", 1);
  EXPECT_NE(fleet.router().metrics_text().find("fo_route_refused_total{reason=\"http\"} 5\n"),
            std::string::npos);
}

TEST_F(Router, AClientThatItHasNoRoomForHasAnIdAndIsCounted) {
  http::ServerLimits limits;
  limits.connections = 1;
  Fleet fleet(in_turns(), quick_checks(), limits);
  fleet.add_engine();
  const Client first = fleet.begin(chat(true, 8, {{"fail", "stall@3"}}));
  fleet.run_until([&] { return fleet.busy(0) == 1; });
  const std::string answer = answer_to_bytes(fleet, "");
  expect_early(fleet, answer, "503", "", "overloaded", 1);
  EXPECT_NE(answer.find("\r\nRetry-After: 1\r\n"), std::string::npos);
}

// They are read on a thread.
TEST_F(Router, LongAnswersAndEventsArriveAsTheyAre) {
  const std::string text(1'000'000, 'x');
  Fleet fleet;
  ScriptedWorker worker(
      fleet.executor(), [&](ScriptedWorker::Peer& peer, const std::string& request) {
        if (request.find("\"stream\":true") == std::string::npos) {
          return peer.write(json_answer(R"({"note":"error","text":")" + text + "\"}"));
        }
        return peer.write(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
            R"(data: {"choices":[{"index":0,"delta":{"content":")" +
            text + "\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
      });
  fleet.add_worker(worker.url());
  json body = chat(false);
  body["tools"] = {{{"type", "function"}}};
  const Client whole = fleet.ask(body);
  EXPECT_EQ(whole->status(), 200);
  EXPECT_EQ(whole->json()["text"], text);
  body["stream"] = true;
  const Client streamed = fleet.ask(body);
  EXPECT_EQ(streamed->status(), 200);
  EXPECT_EQ(streamed->text(), text);
  EXPECT_TRUE(streamed->is_whole());
}

/// Two workers, each of which knows the responses that it has made: "resp_0" and "resp_1".
class Responses : public FdCounting {
 protected:
  Responses() {
    for (int i = 0; i < 2; ++i) {
      workers_.push_back(std::make_unique<ScriptedWorker>(
          fleet_.executor(),
          [i](ScriptedWorker::Peer& peer, const std::string& request) {
            const std::string id = "resp_" + std::to_string(i);
            const bool is_unknown =
                request.find("resp_") != std::string::npos && request.find(id) == std::string::npos;
            if (is_unknown) return peer.write(json_answer("{}", "X-Failed: yes\r\n"));
            return peer.write(json_answer(R"({"id":")" + id + R"(","model":"oracle"})"));
          },
          "lora"));
      fleet_.add_worker(workers_.back()->url());
    }
  }
  Client ask(const json& more) {
    json body{{"model", "oracle"}, {"input", "Which way?"}};
    body.update(more);
    return fleet_.ask(body, "/v1/responses");
  }

  Fleet fleet_;
  std::vector<std::unique_ptr<ScriptedWorker>> workers_;
};

TEST_F(Responses, AContinuationGoesToTheWorkerThatMadeTheFirstOne) {
  ASSERT_EQ(ask(json::object())->json()["id"], "resp_0");
  ASSERT_EQ(ask(json::object())->json()["id"], "resp_1");
  for (const char* id : {"resp_1", "resp_1", "resp_0", "resp_0", "resp_1"}) {
    EXPECT_EQ(ask({{"previous_response_id", id}})->json()["id"], id);
    EXPECT_EQ(fleet_.get("/v1/responses/" + std::string(id))->json()["id"], id);
    EXPECT_EQ(fleet_.ask(json::object(), "/v1/responses/" + std::string(id) + "/cancel")->status(),
              200);
  }
}

TEST_F(Responses, AContinuationByAModelThatItsWorkerDoesNotServeIs404) {
  ASSERT_EQ(ask(json::object())->json()["id"], "resp_0");
  const Client call = ask({{"previous_response_id", "resp_0"}, {"model", "other"}});
  EXPECT_EQ(call->status(), 404);
  EXPECT_EQ(call->error_code(), "model_not_found");
  EXPECT_EQ(workers_[0]->requests(), 1);
}

TEST_F(Responses, AKeyMayUseOnlyItsModelsOfTheWorker) {
  ASSERT_EQ(ask(json::object())->json()["id"], "resp_0");
  route::RouterOptions options = in_turns();
  options.keys.emplace();
  (*options.keys)[fleet::sha256_hex("k")] = {.models = {"lora"}};
  fleet_.set_options(std::move(options));
  const http::Fields key{{"authorization", "Bearer k"}};
  const auto status_of = [&](const char* model) {
    const json body{{"model", model}, {"input", "?"}, {"previous_response_id", "resp_0"}};
    return fleet_.ask(body, "/v1/responses", key)->status();
  };
  EXPECT_EQ(status_of("oracle"), 404);
  EXPECT_EQ(status_of("lora"), 200);
  EXPECT_EQ(fleet_.ask(nullptr, "/v1/responses/resp_0", key)->status(), 200);
}

TEST_F(Responses, AnUnknownResponseIs404) {
  const Client call = ask({{"previous_response_id", "resp_0"}});
  EXPECT_EQ(call->status(), 404);
  EXPECT_EQ(call->error_code(), "response_not_found");
  EXPECT_EQ(fleet_.get("/v1/responses/resp_0")->status(), 404);
  EXPECT_EQ(workers_[0]->requests() + workers_[1]->requests(), 0);
}

TEST_F(Responses, AResponseOfAWorkerThatIsGoneIs404) {
  ASSERT_EQ(ask(json::object())->json()["id"], "resp_0");
  fleet_.router().workers().remove("w0");
  fleet_.router().on_change();
  EXPECT_EQ(fleet_.get("/v1/responses/resp_0")->status(), 404);
}

TEST_F(Responses, AResponseThatItsWorkerHasForgottenTakesNoWorkerAway) {
  ScriptedWorker forgets(
      fleet_.executor(), [](ScriptedWorker::Peer& peer, const std::string& request) {
        if (request.starts_with("GET")) {
          return peer.write("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}");
        }
        return peer.write(json_answer(R"({"id":"resp_2"})"));
      });
  fleet_.worker(0).is_drained = fleet_.worker(1).is_drained = true;
  fleet_.add_worker(forgets.url());
  ASSERT_EQ(ask(json::object())->json()["id"], "resp_2");
  EXPECT_EQ(fleet_.get("/v1/responses/resp_2")->status(), 404);
  EXPECT_EQ(ask(json::object())->json()["id"], "resp_2");
}

TEST_F(Router, TwoSetsOfAModelShareItsRequestsByWeight) {
  Fleet fleet;
  const auto of_card = [](const char* card, const char* started_at) {
    return [=](route::Worker& worker) {
      worker.card = card;
      worker.started_at = started_at;
    };
  };
  fleet.add_engine({}, of_card("new", "2026-02-01T00:00:00Z"));
  fleet.add_engine({}, of_card("old", "2026-01-01T00:00:00Z"));
  const auto ask_all = [&fleet] {
    const auto before = std::pair(fleet.counts(0).requests, fleet.counts(1).requests);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(fleet.ask(chat(false, 1))->status(), 200);
    return std::pair(fleet.counts(0).requests - before.first,
                     fleet.counts(1).requests - before.second);
  };
  // Without weights, the set of the oldest worker has all.
  EXPECT_EQ(ask_all(), std::pair(0UL, 20UL));
  const auto set_weight = [&fleet](const char* card, double weight) {
    fleet.router().workers().set_weights("oracle",
                                         fleet.router().weights_with("oracle", card, weight));
    fleet.router().on_change();
  };
  set_weight("old", 0);
  set_weight("new", 1);
  EXPECT_EQ(ask_all(), std::pair(20UL, 0UL));
  set_weight("old", 1);
  const auto shares = ask_all();
  // One of a million runs fails here by chance.
  EXPECT_GT(shares.first, 0U);
  EXPECT_GT(shares.second, 0U);
  EXPECT_FALSE(fleet.router().weights_with("oracle", "third", 1));
}

TEST_F(Router, AnOperatorSeesRequestsAndEndsThem) {
  Fleet fleet(1);
  const auto kill_running = [&fleet] {
    const json list = fleet.requests();
    ASSERT_EQ(list.size(), 1U);
    EXPECT_EQ(list[0]["worker"], "w0");
    EXPECT_EQ(list[0]["model"], "oracle");
    EXPECT_EQ(list[0].dump().find("Which way"), std::string::npos);
    EXPECT_TRUE(fleet.router().kill(list[0]["id"]));
  };
  EXPECT_FALSE(fleet.router().kill("another"));

  const Client stream = fleet.begin(chat(true, 8, {{"fail", "stall@3"}}));
  fleet.run_until([&] { return stream->events().size() >= 3; });
  kill_running();
  fleet.run_until([&] { return stream->has_ended(); });
  EXPECT_TRUE(stream->is_whole());
  EXPECT_EQ(stream->error_code(), "request_killed");

  const Client whole = fleet.begin(chat(false, 8, {{"fail", "stall@start"}}));
  fleet.run_until([&] { return fleet.busy(0) == 1; });
  kill_running();
  fleet.run_until([&] { return whole->has_ended(); });
  EXPECT_EQ(whole->status(), 503);
  EXPECT_EQ(whole->header("x-should-retry"), "false");
  fleet.run_until([&] { return fleet.busy(0) == 0; });
  EXPECT_EQ(fleet.counts(0).aborted, 2U);
  EXPECT_EQ(fleet.worker(0).health.state(), fleet::HealthState::kHealthy);
}

// The daemon ends like this when it is told to stop at once.
TEST_F(Router, RequestsMayBeInFlightAtItsEnd) {
  Fleet fleet;
  fleet.add_engine({}, [](route::Worker& worker) { worker.slots = 2; });
  std::vector<Client> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(fleet.begin(chat(true, 8, {{"fail", "stall@3"}})));
  fleet.run_until([&] { return fleet.busy(0) == 2 && fleet.requests().size() == 4; });
}

}  // namespace
}  // namespace fo::test
