#include "gms/stat/stat_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fo::gms {
namespace {

using namespace std::chrono_literals;
using base::ExitStatus;
using nlohmann::json;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;
using Time = StatWatch::Time;

constexpr Time kStart = Time(std::chrono::seconds(1763703180));  // 2025-11-21T05:33:00Z
constexpr std::string_view kMark = "\x1b[7m";

StatRow row(const std::string& state, int readers = 0, const std::string& hash = "",
            std::int64_t allocations = 0, int device = 0) {
  StatRow row;
  row.socket = {"/run/gms_" + std::to_string(device) + "_weights.sock", base::DeviceOrdinal(device),
                "weights"};
  Stat& stat = row.stat.emplace();
  stat.socket = row.socket.path;
  stat.state.state = state;
  stat.state.has_rw_session = state == "RW";
  stat.state.ro_session_count = readers;
  stat.state.allocation_count = allocations;
  stat.state.memory_layout_hash = LayoutHash(hash);
  return row;
}

StatRow failed(ExitStatus status, const std::string& error, int device = 0) {
  StatRow row;
  row.socket = {"/run/gms_" + std::to_string(device) + "_weights.sock", base::DeviceOrdinal(device),
                "weights"};
  row.status = status;
  row.error = error;
  return row;
}

StatRow refused(int device = 0) {
  return failed(ExitStatus::kUnavailable, "connect to socket 's': Connection refused", device);
}

std::string plain(const std::string& line) {
  std::string out;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '\x1b') {
      at = line.find('m', at);
    } else {
      out += line[at];
    }
  }
  return out;
}

class Watch : public testing::Test {
 protected:
  std::vector<StatWatch::Change> look(std::vector<StatRow> rows) {
    now_ += 1s;
    return watch_.update(std::move(rows), now_);
  }
  /// The text of the one change there is.
  std::string text_of(std::vector<StatRow> rows) {
    const auto changes = look(std::move(rows));
    EXPECT_THAT(changes, SizeIs(1));
    return changes.empty() ? "" : changes[0].text;
  }
  [[nodiscard]] std::vector<std::string> screen(std::size_t lines = 24, std::size_t columns = 100,
                                                base::Duration marked = 500ms) const {
    const auto ago = std::chrono::duration_cast<Time::duration>(marked);
    return watch_.screen(lines, columns, "title", now_, now_ - ago, true);
  }

  StatWatch watch_;
  Time now_ = kStart;
};

TEST_F(Watch, TellsTheFirstLookAndThenOnlyChanges) {
  EXPECT_EQ(text_of({row("EMPTY")}),
            "EMPTY, readers 0, waiting writers 0, allocations 0, layout none");
  EXPECT_THAT(look({row("EMPTY")}), IsEmpty());
  EXPECT_EQ(text_of({row("RW", 0, "", 3)}), "EMPTY -> RW, allocations 0 -> 3");
  EXPECT_EQ(text_of({row("COMMITTED", 0, "0123456789abcdef", 3)}),
            "RW -> COMMITTED, layout none -> 0123456789ab");
  EXPECT_EQ(text_of({row("RO", 2, "0123456789abcdef", 3)}), "COMMITTED -> RO, readers 0 -> 2");
  EXPECT_EQ(text_of({row("RO", 1, "0123456789abcdef", 3)}), "readers 2 -> 1");
  EXPECT_THAT(look({row("RO", 1, "0123456789abcdef", 3)}), IsEmpty());
  EXPECT_EQ(text_of({row("RO", 1, "ffff", 3)}), "layout 0123456789ab -> ffff");
}

TEST_F(Watch, ServerThatGoesAndComesBackIsSaidOnceEach) {
  look({row("RO", 1)});
  EXPECT_EQ(text_of({refused()}), "gone: connect to socket 's': Connection refused");
  EXPECT_THAT(look({refused()}), IsEmpty());
  EXPECT_THAT(look({failed(ExitStatus::kUnavailable, "another reason")}), IsEmpty());
  EXPECT_THAT(text_of({row("EMPTY")}), StartsWith("back: EMPTY, readers 0"));
  EXPECT_EQ(text_of({failed(ExitStatus::kTryAgain, "talk to it: timed out")}),
            "no answer: talk to it: timed out");
  EXPECT_THAT(text_of({refused()}), StartsWith("gone: "));
}

TEST_F(Watch, ServerThatWasNeverThereIsAwaited) {
  EXPECT_THAT(text_of({refused()}), StartsWith("missing: "));
  EXPECT_THAT(screen()[3], HasSubstr("missing"));
  EXPECT_THAT(text_of({row("EMPTY")}), StartsWith("here: EMPTY"));
  EXPECT_THAT(text_of({refused()}), StartsWith("gone: "));
  EXPECT_THAT(screen()[3], HasSubstr("gone"));
}

TEST_F(Watch, SocketThatVanishesIsAServerThatIsGone) {
  look({row("EMPTY"), row("EMPTY", 0, "", 0, 1)});
  EXPECT_EQ(text_of({row("EMPTY", 0, "", 0, 1)}), "gone: its socket was removed");
  EXPECT_THAT(screen(), SizeIs(7));
  EXPECT_THAT(text_of({row("EMPTY"), row("EMPTY", 0, "", 0, 1)}), StartsWith("back: "));
}

TEST_F(Watch, DeadSocketThatVanishesIsForgotten) {
  look({row("EMPTY"), refused(1)});
  EXPECT_THAT(look({row("EMPTY")}), IsEmpty());
  EXPECT_THAT(screen(), SizeIs(4));
}

TEST_F(Watch, OnlySoManyGoneServersAreRemembered) {
  for (int i = 0; i < 2000; ++i) look({row("EMPTY", 0, "", 0, i)});
  EXPECT_THAT(screen(100'000), SizeIs(testing::Lt(600)));
}

TEST_F(Watch, ServersAreInTheOrderOfDevices) {
  const auto changes =
      look({row("EMPTY", 0, "", 0, 10), row("EMPTY", 0, "", 0, 2), row("EMPTY", 0, "", 0, 0)});
  ASSERT_THAT(changes, SizeIs(3));
  EXPECT_EQ(changes[0].row.socket.device, base::DeviceOrdinal(0));
  EXPECT_EQ(changes[2].row.socket.device, base::DeviceOrdinal(10));
  EXPECT_THAT(plain(screen()[5]), StartsWith("    10  weights"));
}

TEST_F(Watch, LinesHaveTimeAndName) {
  StatRow unnamed = row("EMPTY");
  unnamed.socket.device.reset();
  const auto changes = look({row("RO", 2), unnamed});
  EXPECT_EQ(to_text(changes[0]),
            "2025-11-21T05:33:01.000Z  device 0 weights  RO, readers 2, waiting writers 0, "
            "allocations 0, layout none");
}

TEST_F(Watch, ServerWithoutADeviceGoesByItsPath) {
  StatRow unnamed = row("EMPTY");
  unnamed.socket = {"/run/a\x1b.sock", std::nullopt, ""};
  EXPECT_THAT(to_text(look({unnamed})[0]), HasSubstr("  /run/a\\x1b.sock  EMPTY"));
}

TEST_F(Watch, JsonHasTheStateAndTheFieldsThatChanged) {
  EXPECT_EQ(json::parse(to_json(look({row("EMPTY")})[0]))["changed"], json::array());
  json out = json::parse(to_json(look({row("RW", 0, "", 1)})[0]));
  EXPECT_EQ(out["changed"], json({"allocation_count", "has_rw_session", "state"}));
  EXPECT_EQ(out["state"], "RW");
  EXPECT_EQ(out["time"], "2025-11-21T05:33:02.000Z");
  EXPECT_EQ(out["device"], 0);
  out = json::parse(to_json(look({refused()})[0]));
  EXPECT_EQ(out["changed"], json({"error"}));
  EXPECT_EQ(out["error"], "connect to socket 's': Connection refused");
  EXPECT_FALSE(out.contains("state"));
}

TEST_F(Watch, TextOfAPeerIsMadeSafe) {
  look({row("EMPTY")});
  EXPECT_EQ(text_of({row("\x1b[2J\n")}), "EMPTY -> \\x1b[2J\\x0a");
  EXPECT_EQ(text_of({failed(ExitStatus::kProtocol, "it says 's' \x1b[2J\xc2\x9b\n")}),
            "no answer: it says 's' \\x1b[2J\\xc2\\x9b\\x0a");
  for (const std::string& line : screen(24, 100, -1s)) {
    EXPECT_THAT(plain(line), Not(HasSubstr("\x1b"))) << line;
  }
}

TEST_F(Watch, ScreenMarksWhatChangedForAWhile) {
  look({row("COMMITTED", 0, "abc", 2), row("EMPTY", 0, "", 0, 1)});
  EXPECT_THAT(screen()[3], Not(HasSubstr(kMark)));
  look({row("RO", 1, "abc", 2), row("EMPTY", 0, "", 0, 1)});
  const auto lines = screen();
  ASSERT_THAT(lines, SizeIs(7));
  EXPECT_THAT(lines[3], HasSubstr(std::string(kMark) + "RO"));
  EXPECT_THAT(lines[3], HasSubstr(std::string(kMark) + "      1"));
  EXPECT_THAT(lines[4], Not(HasSubstr(kMark)));
  EXPECT_THAT(plain(lines[6]), EndsWith("device 0 weights  COMMITTED -> RO, readers 0 -> 1"));
  look({row("RO", 1, "abc", 2), row("EMPTY", 0, "", 0, 1)});
  EXPECT_THAT(screen()[3], Not(HasSubstr(kMark)));
}

TEST_F(Watch, ScreenTellsHowLongAStateHasLasted) {
  look({row("EMPTY")});
  now_ += 2min;
  EXPECT_THAT(plain(screen()[3]), testing::ContainsRegex("EMPTY +>2m "));
  look({row("RW")});
  now_ += 5s;
  EXPECT_THAT(plain(screen()[3]), testing::ContainsRegex("RW +5s "));
}

TEST_F(Watch, ScreenNeverOutgrowsTheTerminal) {
  std::vector<StatRow> rows;
  for (int device = 0; device < 20; ++device) {
    rows.push_back(row("EMPTY", 0, "", 0, device));
    rows.back().socket.tag = "\xc3\xa4\xc3\xb6\xc3\xbc";
  }
  look(rows);
  for (StatRow& one : rows) one.stat->state.state = "RW";
  look(rows);
  for (const std::size_t lines : {0U, 1U, 2U, 3U, 4U, 10U, 23U, 24U, 25U, 26U, 49U}) {
    for (std::size_t columns = 0; columns < 130; ++columns) {
      const auto drawn = screen(lines, columns);
      ASSERT_LE(drawn.size(), lines);
      for (const std::string& line : drawn) ASSERT_LE(plain(line).size(), columns);
    }
  }
  EXPECT_THAT(screen(10),
              ElementsAre(testing::_, "", testing::_, testing::_, testing::_, testing::_,
                          testing::_, testing::_, testing::_, "... and 14 more"));
  EXPECT_THAT(plain(screen(30).back()), HasSubstr("EMPTY -> RW"));
}

}  // namespace
}  // namespace fo::gms
