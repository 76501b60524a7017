#include "canary/xid/kernel_log.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <vector>

#include "support/failure.h"

namespace fo::canary {
namespace {

using testing::ElementsAre;
using Texts = std::vector<std::string>;

const std::string kXid = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.";

Texts texts_of_kmsg(const std::string& record) {
  Texts texts;
  parse_kmsg(record, [&](const KernelMessage& message) { texts.push_back(message.text); });
  return texts;
}

TEST(Kmsg, ARecordIsItsText) {
  parse_kmsg("3,4471,3023054882,-;" + kXid + "\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n",
             [&](const KernelMessage& message) {
               EXPECT_EQ(message.text, kXid);
               EXPECT_EQ(message.uptime, std::chrono::microseconds(3023054882));
             });
  EXPECT_THAT(texts_of_kmsg("3,4471,3023054882,-,caller=T12;" + kXid), ElementsAre(kXid));
}

TEST(Kmsg, EscapedNewlinesSeparateMessages) {
  EXPECT_THAT(
      texts_of_kmsg("4,1,2,-;NVRM: The NVIDIA GPU 0000:b3:00.0\\x0aNVRM: (PCI ID\\x5c\\x0a\n"),
      ElementsAre("NVRM: The NVIDIA GPU 0000:b3:00.0", "NVRM: (PCI ID\\"));
  EXPECT_THAT(texts_of_kmsg("4,1,2,-;a\\xzz\\x4"), ElementsAre("a\\xzz\\x4"));
}

TEST(Kmsg, OtherFormsHaveNoMessage) {
  for (const char* const record : {"", ";", "4;a", "4,1;a", "4,1,;a", "4,1,x,-;a", "4,1,2,-",
                                   "4,1,99999999999999999999,-;a"}) {
    EXPECT_THAT(texts_of_kmsg(record), ElementsAre()) << record;
  }
}

TEST(LogLine, PrefixesOfEachLog) {
  const auto uptime = std::chrono::seconds(1843) + std::chrono::microseconds(308145);
  struct Case {
    std::string before;
    bool has_uptime = false;
    std::string time = {};
  };
  for (const Case& from : std::vector<Case>{
           {""},
           {"<4>"},
           {"[...] "},
           {"[ 1843.308145] ", true},
           {"<4>[ 1843.308145] ", true},
           {"[ 1843.308145] [    T123] ", true},
           {"kern  :warn  : [ 1843.308145] ", true},
           {"[Fri Aug 30 11:43:09 2024] ", false, "Fri Aug 30 11:43:09 2024"},
           {"2026-04-22T21:25:20,458998+00:00 ", false, "2026-04-22T21:25:20,458998+00:00"},
           {"Feb 14 05:03:41 gpu-1 kernel: ", false, "Feb 14 05:03:41"},
           {"Feb  4 05:03:41 gpu-1 kernel: [ 1843.308145] ", true, "Feb  4 05:03:41"},
           {"2026-02-14T05:03:41.5+01:00 gpu-1 kernel: ", false, "2026-02-14T05:03:41.5+01:00"},
           {"                "}}) {
    const KernelMessage message = parse_log_line(from.before + kXid + "\r");
    EXPECT_EQ(message.text, kXid) << from.before;
    EXPECT_EQ(message.uptime.has_value(), from.has_uptime) << from.before;
    if (message.uptime) {
      EXPECT_EQ(*message.uptime, uptime) << from.before;
    }
    EXPECT_EQ(message.time, from.time) << from.before;
  }
}

TEST(LogLine, AnApplicationThatLogsSuchATextIsNotTheKernel) {
  for (const std::string before : {"Feb 14 05:03:41 gpu-1 my-app: ", "seen: ", "a "}) {
    EXPECT_EQ(parse_log_line(before + kXid).text, before + kXid);
  }
}

class Lines : public testing::Test {
 protected:
  Texts texts_;
  LogLines lines_{[this](const KernelMessage& message) { texts_.push_back(message.text); }};
};

TEST_F(Lines, ComeInPieces) {
  const std::string bytes = "a\n\nbc\nd";
  for (const char c : bytes) lines_.append({&c, 1});
  EXPECT_THAT(texts_, ElementsAre("a", "bc"));
  lines_.finish();
  EXPECT_THAT(texts_, ElementsAre("a", "bc", "d"));
}

TEST_F(Lines, ALongOneIsCut) {
  for (std::size_t i = 0; i < 3 * LogLines::kMaxBytes; ++i) lines_.append("x");
  lines_.append("\ny\n");
  EXPECT_THAT(texts_, ElementsAre(std::string(LogLines::kMaxBytes, 'x'), "y"));
}

// Results of read(2): a text, or an errno.
struct Result {
  std::string text;
  int err = 0;
};

ReadCall reads(std::deque<Result> results) {
  return [results](char* to, std::size_t size) mutable -> ssize_t {
    if (results.empty()) return 0;
    const Result next = results.front();
    results.pop_front();
    errno = next.err;
    if (next.err != 0) return -1;
    EXPECT_LE(next.text.size(), size);
    std::copy(next.text.begin(), next.text.end(), to);
    return static_cast<ssize_t>(next.text.size());
  };
}

TEST(ReadKmsg, GoesOnAfterMessagesWereLost) {
  Texts texts;
  int lost = 0;
  read_kmsg(
      reads({{"4,1,2,-;a"}, {"", EPIPE}, {"", EINTR}, {"4,9,2,-;b"}}), "read 'log'",
      [&](const KernelMessage& message) { texts.push_back(message.text); }, [&] { ++lost; });
  EXPECT_THAT(texts, ElementsAre("a", "b"));
  EXPECT_EQ(lost, 1);
}

TEST(ReadKmsg, OtherErrorsEndIt) {
  const auto failure = test::failure_of([] {
    read_kmsg(
        reads({{"", EPERM}}), "read 'log'", [](const KernelMessage&) {}, [] {});
  });
  EXPECT_EQ(failure.status, base::ExitStatus::kNotPermitted);
  EXPECT_EQ(failure.message, "read 'log': Operation not permitted");
}

}  // namespace
}  // namespace fo::canary
