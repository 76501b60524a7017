#include "engine/state.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace fo::engine {
namespace {

using enum EngineState;
using enum LifeEvent;

TEST(EngineState, TheTableIsWalkedInEveryStateWithEveryEvent) {
  const std::map<std::pair<EngineState, LifeEvent>, EngineState> table{
      {{kInit, kReady}, kStandby},        {{kInit, kServing}, kActive},
      {{kStandby, kGranted}, kWaking},    {{kWaking, kServing}, kActive},
      {{kActive, kHandedOver}, kStandby}, {{kInit, kEnded}, kDead},
      {{kStandby, kEnded}, kDead},        {{kWaking, kEnded}, kDead},
      {{kActive, kEnded}, kDead},
  };
  for (const EngineState from : kAllStates) {
    for (const LifeEvent event : kAllEvents) {
      const auto expected = table.find({from, event});
      const auto next = next_state(from, event);
      ASSERT_EQ(next.has_value(), expected != table.end())
          << state_name(from) << " " << static_cast<int>(event);
      if (next) {
        EXPECT_EQ(*next, expected->second);
      }
    }
  }
}

TEST(EngineState, NamesAreReadAsTheyAreWritten) {
  for (const EngineState state : kAllStates) EXPECT_EQ(parse_state(state_name(state)), state);
  EXPECT_EQ(parse_state("Active"), std::nullopt);
  EXPECT_EQ(parse_state(""), std::nullopt);
}

}  // namespace
}  // namespace fo::engine
