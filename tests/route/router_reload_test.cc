// Options of a router that change while it serves.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "route/fleet.h"

namespace fo::test {
namespace {

using nlohmann::json;

class RouterReload : public FdCounting {};

TEST_F(RouterReload, ARequestInFlightGoesOnAndTheNextOneHasTheNewOptions) {
  Fleet fleet;
  json received;
  std::size_t requests = 0;
  oracle::EngineOptions engine;
  engine.on_request = [&](const json& body) {
    received = body;
    ++requests;
  };
  fleet.add_engine(engine);
  const json body = chat(true, 40, {{"gap", "5ms"}});
  const Client before = fleet.begin(body);
  fleet.run_until([&] { return before->status() == 200 && !before->body().empty(); });

  route::RouterOptions options = in_turns();
  options.allowed_paths = {"/metrics"};
  options.rules.allowed_fields = {"priority"};
  options.rules.salt_by_key = true;
  options.worker_headers = {{"authorization", "Bearer secret"}};
  options.resume.enabled = false;
  fleet.set_options(options);
  EXPECT_EQ(fleet.get("/metrics")->status(), 200);
  json with_field = chat(false, 4);
  with_field["priority"] = 1;
  EXPECT_EQ(fleet.ask(with_field, "/v1/chat/completions", {{"x-api-key", "a"}})->status(), 200);
  EXPECT_TRUE(received.contains("cache_salt"));
  fleet.run_until([&] { return before->has_ended(); });
  EXPECT_TRUE(before->is_whole());
  EXPECT_EQ(before->text(), fleet.text_of(body));
  EXPECT_EQ(requests, 2U);

  fleet.set_options(in_turns());
  EXPECT_EQ(fleet.get("/metrics")->status(), 404);
  EXPECT_EQ(fleet.ask(with_field)->status(), 400);
}

TEST_F(RouterReload, ALongBodyIsReadWithTheOptionsOfItsBegin) {
  Fleet fleet(1);
  json body = chat(false, 4);
  body["priority"] = 1;
  body["user"] = std::string(4 * 1024 * 1024, 'u');
  route::RouterOptions options = in_turns();
  options.rules.allowed_fields = {"priority"};
  fleet.set_options(options);
  const Client client = fleet.begin(body);
  // A thread reads the body meanwhile.
  fleet.run_until([&] {
    fleet.set_options(options);
    return client->has_ended();
  });
  EXPECT_EQ(client->status(), 200);
}

TEST_F(RouterReload, ANewKeyIsForTheWorkersThatRefusedTheOldOneToo) {
  Fleet fleet(1);
  fleet.engine(0).knobs().refuse_status = 401;
  fleet.engine(0).knobs().refuse_next = 1;
  EXPECT_EQ(fleet.ask(chat(false))->error_code(), "worker_misconfigured");
  fleet.set_options(in_turns());
  EXPECT_EQ(fleet.ask(chat(false))->error_code(), "worker_misconfigured");
  route::RouterOptions options = in_turns();
  options.worker_headers = {{"authorization", "Bearer secret"}};
  fleet.set_options(options);
  EXPECT_EQ(fleet.ask(chat(false))->status(), 200);
}

TEST_F(RouterReload, KeysChange) {
  Fleet fleet(1);
  route::RouterOptions options = in_turns();
  options.keys.emplace();
  fleet.set_options(options);
  EXPECT_EQ(fleet.ask(chat(false))->status(), 401);
  fleet.set_options(in_turns());
  EXPECT_EQ(fleet.ask(chat(false))->status(), 200);
}

}  // namespace
}  // namespace fo::test
