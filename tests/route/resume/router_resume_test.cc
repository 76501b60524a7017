// Streams whose worker fails in the middle, and that go on.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "route/fleet.h"
#include "route/router.h"

namespace fo::test {
namespace {

using nlohmann::json;

json resumable_chat(std::uint64_t tokens = 24) {
  json body = test::chat(true, tokens);
  body.erase("oracle");
  return body;
}

json streamed_completion(std::uint64_t tokens = 24) {
  return {{"model", "oracle"},
          {"prompt", "Once upon"},
          {"max_tokens", tokens},
          {"ignore_eos", true},
          {"stream", true}};
}

void fail_next(Fleet& fleet, std::size_t engine, const std::string& fault,
               std::uint64_t times = 1) {
  oracle::Knobs& knobs = fleet.engine(engine).knobs();
  knobs.fail = oracle::parse_fault(fault);
  knobs.fail_next = times;
  knobs.gap = std::chrono::milliseconds(1);
}

std::string path_of(const json& body) {
  return body.contains("prompt") ? "/v1/completions" : "/v1/chat/completions";
}

class EachMidStreamFault : public FdCounting, public testing::WithParamInterface<const char*> {};

TEST_P(EachMidStreamFault, TheStreamGoesOnTokenForToken) {
  Fleet fleet;
  fleet.add_engines(2);
  for (const json& body : {resumable_chat(), streamed_completion()}) {
    const Client undisturbed = fleet.ask(body, path_of(body));
    fail_next(fleet, 0, GetParam());
    const auto faults = fleet.counts(0).faults;
    Client call;
    while (fleet.counts(0).faults == faults) {
      call = fleet.ask(body, path_of(body));
      EXPECT_EQ(call->status(), 200);
      EXPECT_TRUE(call->is_whole());
      EXPECT_EQ(call->text(), undisturbed->text());
      EXPECT_EQ(call->events().back(), "[DONE]");
    }
    EXPECT_NE(call->body().find(": fo-route: resumed 1\n"), std::string::npos) << call->body();
  }
}

INSTANTIATE_TEST_SUITE_P(, EachMidStreamFault,
                         testing::Values("reset@8", "cut@8", "half@8", "end@8", "error@8",
                                         "abort@8", "reset@1", "cut@23"),
                         [](const auto& fault) {
                           std::string name = fault.param;
                           std::erase(name, '@');
                           return name;
                         });

}  // namespace
}  // namespace fo::test
