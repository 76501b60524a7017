// Requests whose bodies are so long that the router reads them on a thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "route/fleet.h"
#include "route/resume/disturbed.h"

namespace fo::test {
namespace {

using nlohmann::json;

class RouterLongBodies : public FdCounting {
 protected:
  static json long_body(json more = json::object()) {
    more["user"] = std::string(200'000, 'u');
    return long_answer(true, more);
  }
};

TEST_F(RouterLongBodies, AreResumedAsOthers) {
  for (const bool is_streamed : {true, false}) {
    DisturbedFleet fleet(2);
    const json body = is_streamed ? long_body() : in_one_piece(long_body());
    const json undisturbed = summary_of(fleet.ask_directly(1, body));
    fleet.fail_next(0, "exit@8");
    while (fleet.resumes("resumed") == "0") {
      ASSERT_EQ(summary_of(fleet.send_to_router(body)), undisturbed);
    }
  }
}

// Such a body goes to the worker as it is.
TEST_F(RouterLongBodies, ThatCannotBeResumedAreAnswered) {
  DisturbedFleet fleet(1);
  const json body = long_body({{"n", 2}});
  EXPECT_EQ(summary_of(fleet.send_to_router(body)), summary_of(fleet.ask_directly(0, body)));
}

// The router would change the body again for each continuation.
TEST_F(RouterLongBodies, AreNotResumedAsText) {
  route::RouterOptions options = in_turns();
  options.rules.resume.text = true;
  DisturbedFleet fleet(2, std::move(options));
  for (const std::size_t engine : {0U, 1U}) fleet.engine(engine).knobs().token_ids = "ignored";
  for (const bool is_known : {false, true}) {
    for (const std::size_t engine : {0U, 1U}) fleet.worker(engine).lacks_token_ids = is_known;
    const std::string reason = is_known ? "token ids were not requested from the worker"
                                        : "the request is longer than 64 KiB";
    const Client call = fleet.ask_with_fault(long_body(), "cut@8");
    EXPECT_EQ(call->error_code(), "worker_lost");
    EXPECT_NE(call->error_message().find(reason), std::string::npos) << call->error_message();
  }
  EXPECT_EQ(fleet.resumes("refused"), "2");
}

TEST_F(RouterLongBodies, AreReadByFewThreads) {
  constexpr std::ptrdiff_t kMaxReaders = 8;
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  DisturbedFleet fleet(1);
  const std::ptrdiff_t before = threads();
  std::ptrdiff_t most = 0;
  std::vector<Client> calls;
  for (int i = 0; i < 40; ++i) calls.push_back(fleet.begin(long_body()));
  fleet.run_until([&] {
    most = std::max(most, threads() - before);
    return std::ranges::all_of(calls, [](const Client& call) { return call->has_ended(); });
  });
  for (const Client& call : calls) EXPECT_EQ(call->status(), 200);
  EXPECT_LE(most, kMaxReaders);
}

TEST_F(RouterLongBodies, ThatKillTwoEnginesAreRefusedFromThenOn) {
  DisturbedFleet fleet(3);
  const json body = long_body();
  for (std::size_t i = 0; i < 3; ++i) fleet.fail_next(i, "exit@0");
  EXPECT_EQ(fleet.send_to_router(body)->error_code(), "poison_request");
  EXPECT_EQ(fleet.send_to_router(body)->status(), 422);
  for (std::size_t i = 0; i < 3; ++i) fleet.engine(i).knobs().fail = {};
  EXPECT_EQ(fleet.send_to_router(long_body({{"seed", 1}}))->status(), 200);
}

}  // namespace
}  // namespace fo::test
