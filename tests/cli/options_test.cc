#include "cli/options.h"

#include <gtest/gtest.h>

#include <CLI/App.hpp>

#include "cli/app.h"
#include "support.h"

namespace fo::cli::test {
namespace {

using Kind = ParseResult::Kind;
using Words = std::vector<std::string>;

ParseResult result_of(const Declare& declare, const Words& words) {
  CommonOptions common;
  return parse({.name = "x", .summary = "x", .version = "1"}, common, declare, words);
}

Kind parse_words(const Declare& declare, const Words& words) {
  return result_of(declare, words).kind;
}

TEST(SharedOptions, DurationsAndSizes) {
  base::Duration duration{};
  std::optional<base::Duration> maybe;
  base::ByteCount size = 0;
  const auto declare = [&](CLI::App& app) {
    add_duration(app, "--duration", duration, "d");
    add_duration(app, "--maybe", maybe, "m");
    add_size(app, "--size", size, "s");
  };
  ASSERT_EQ(parse_words(declare, {"--duration", "1500ms", "--size", "4GiB"}), Kind::kRun);
  EXPECT_EQ(duration, std::chrono::milliseconds(1500));
  EXPECT_EQ(maybe, std::nullopt);
  EXPECT_EQ(size, 4 * base::kGiB);
  ASSERT_EQ(parse_words(declare, {"--maybe=0"}), Kind::kRun);
  EXPECT_EQ(maybe, base::Duration::zero());
  EXPECT_EQ(parse_words(declare, {"--duration", "-1s"}), Kind::kUsageError);
  EXPECT_EQ(parse_words(declare, {"--duration="}), Kind::kUsageError);
  EXPECT_EQ(parse_words(declare, {"--size", "1.5GiB"}), Kind::kUsageError);
}

TEST(SharedOptions, ADurationMayHaveToBePositive) {
  base::Duration duration{};
  const auto declare = [&](CLI::App& app) {
    add_positive_duration(app, "--duration", duration, "d", std::chrono::hours(24));
  };
  const auto reason = [&](const std::string& word) { return result_of(declare, {word}).text; };
  ASSERT_EQ(parse_words(declare, {"--duration", "24h"}), Kind::kRun);
  EXPECT_EQ(duration, std::chrono::hours(24));
  EXPECT_EQ(reason("--duration=0"), "--duration: '0' is not above 0");
  EXPECT_EQ(reason("--duration=0ms"), "--duration: '0ms' is not above 0");
  EXPECT_EQ(reason("--duration=25h"), "--duration: '25h' is over 24h");
  EXPECT_EQ(reason("--duration=5"), "--duration: '5': a duration needs a unit, for example 5s");
}

TEST(SharedOptions, NumbersAreInTheirRange) {
  int number = 7;
  std::optional<std::uint64_t> maybe;
  const auto declare = [&](CLI::App& app) {
    add_number(app, "--number", number, "n", 1, 9);
    add_number(app, "--maybe", maybe, "m", 1);
  };
  const auto reason = [&](const std::string& word) { return result_of(declare, {word}).text; };
  ASSERT_EQ(parse_words(declare, {"--number=9", "--maybe=18446744073709551615"}), Kind::kRun);
  EXPECT_EQ(number, 9);
  EXPECT_EQ(maybe, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(reason("--number=10"), "--number: '10' is not a whole number from 1 to 9");
  EXPECT_EQ(reason("--number=-1"), "--number: '-1' is not a whole number from 1 to 9");
  EXPECT_EQ(reason("--maybe=0"), "--maybe: '0' is not a whole number of at least 1");
}

TEST(SharedOptions, AChoiceIsOneOfItsWords) {
  int number = 2;
  const auto declare = [&](CLI::App& app) {
    add_choice(app, "--number", number, {{"two", 2}, {"one", 1}}, "n", "WORD");
  };
  EXPECT_NE(result_of(declare, {"--help"}).text.find("(default: two)"), std::string::npos);
  ASSERT_EQ(parse_words(declare, {"--number=one"}), Kind::kRun);
  EXPECT_EQ(number, 1);
  EXPECT_EQ(result_of(declare, {"--number=three"}).text, "--number: three not in {two,one}");
}

TEST(SharedOptions, ARefusalSaysWhatIsTaken) {
  base::Duration duration{};
  base::ByteCount size = 0;
  std::vector<base::DeviceOrdinal> devices;
  std::vector<std::string> tags;
  const auto declare = [&](CLI::App& app) {
    add_duration(app, "--duration", duration, "d");
    add_size(app, "--size", size, "s");
    add_devices(app, devices, "d");
    add_tags(app, tags, "t");
  };
  const auto reason = [&](const std::string& word) { return result_of(declare, {word}).text; };
  EXPECT_EQ(reason("--duration=5"), "--duration: '5': a duration needs a unit, for example 5s");
  EXPECT_EQ(reason("--duration=0.5"),
            "--duration: '0.5': a duration needs a unit, for example 0.5s");
  EXPECT_EQ(reason("--duration=5 s"),
            "--duration: '5 s' is not a duration such as 500ms, 30s or 2m");
  EXPECT_EQ(reason("--size=4G"), "--size: '4G' is not a size such as 4GiB or 4096");
  EXPECT_EQ(reason("--devices=x"), "--devices: 'x' is not a device number, 0 to 1023");
  EXPECT_EQ(reason("--tags=a/b"), "--tags: 'a/b' is not a tag: a word without '/'");
}

TEST(SharedOptions, ABadVariableIsBlamedAndNotItsOption) {
  EndpointOptions endpoint;
  const auto declare = [&](CLI::App& app) { add_endpoint(app, endpoint); };
  EXPECT_EQ(result_of(declare, {"--server-uid", "me"}).text, "--server-uid: 'me' is not a user id");
  const ScopedVariable variable("GMS_SERVER_UID", "me");
  const Failure failure = failure_of([&] { parse_words(declare, {}); });
  EXPECT_EQ(failure.status, base::ExitStatus::kConfig);
  EXPECT_EQ(failure.message, "read GMS_SERVER_UID: 'me' is not a user id");
  EXPECT_EQ(parse_words(declare, {"--server-uid", "7"}), Kind::kRun);
  EXPECT_EQ(endpoint.server_uid, 7U);
}

TEST(SharedOptions, DefaultsOfSizesCanBeTypedBackIn) {
  base::ByteCount size = base::kGiB;
  CLI::App app;
  EXPECT_EQ(add_size(app, "--size", size, "s")->get_default_str(), "1GiB");
  size = base::kGiB + 1;
  EXPECT_EQ(add_size(app, "--odd", size, "s")->get_default_str(), "1073741825");
}

TEST(SharedOptions, DevicesAreAListOrAll) {
  std::vector<base::DeviceOrdinal> devices;
  const auto declare = [&](CLI::App& app) { add_devices(app, devices, "d"); };
  ASSERT_EQ(parse_words(declare, {"--devices", "1,0,1023"}), Kind::kRun);
  EXPECT_EQ(devices, (std::vector{base::DeviceOrdinal(1), base::DeviceOrdinal(0),
                                  base::DeviceOrdinal(1023)}));
  ASSERT_EQ(parse_words(declare, {"--devices", "all"}), Kind::kRun);
  EXPECT_TRUE(devices.empty());
  for (const char* text : {"", ",", "0,", "-1", "1024", "0,0", "all,0", "x", " 0", "0 1"}) {
    EXPECT_EQ(parse_words(declare, {"--devices=" + std::string(text)}), Kind::kUsageError) << text;
  }
}

TEST(SharedOptions, TagsAreAListOfNames) {
  std::vector<std::string> tags;
  const auto declare = [&](CLI::App& app) { add_tags(app, tags, "t"); };
  ASSERT_EQ(parse_words(declare, {"--tags", "weights,kv_cache"}), Kind::kRun);
  EXPECT_EQ(tags, (Words{"weights", "kv_cache"}));
  for (const char* text : {"", "a,", "a,a", "a/b", "../x"}) {
    EXPECT_EQ(parse_words(declare, {"--tags=" + std::string(text)}), Kind::kUsageError) << text;
  }
}

TEST(SharedOptions, AnEndpointIsASocketOrAFolderWithDeviceAndTag) {
  EndpointOptions endpoint;
  const auto declare = [&](CLI::App& app) {
    endpoint = {};
    add_endpoint(app, endpoint);
  };
  ASSERT_EQ(parse_words(declare, {"--socket", "/s"}), Kind::kRun);
  EXPECT_EQ(endpoint.socket, "/s");
  ASSERT_EQ(parse_words(declare, {"--socket-dir", "/d", "--device", "3", "--tag", "kv"}),
            Kind::kRun);
  EXPECT_EQ(endpoint.socket_dir, "/d");
  EXPECT_EQ(endpoint.device, base::DeviceOrdinal(3));
  EXPECT_EQ(endpoint.tag, "kv");
  EXPECT_EQ(parse_words(declare, {"--socket", "/s", "--device", "3"}), Kind::kUsageError);
  EXPECT_EQ(parse_words(declare, {"--socket", "/s", "--tag", "kv"}), Kind::kUsageError);
  EXPECT_EQ(parse_words(declare, {"--device", "-1"}), Kind::kUsageError);
  const auto declare_mapping = [&](CLI::App& app) {
    endpoint = {};
    add_endpoint(app, endpoint, DeviceOfSocket::kWhereToMap);
  };
  ASSERT_EQ(parse_words(declare_mapping, {"--socket", "/s", "--device", "3"}), Kind::kRun);
  EXPECT_EQ(endpoint.device, base::DeviceOrdinal(3));
  EXPECT_EQ(parse_words(declare_mapping, {"--socket", "/s", "--tag", "kv"}), Kind::kUsageError);
  const ScopedVariable variable("GMS_SOCKET_DIR", "/env");
  ASSERT_EQ(parse_words(declare, {}), Kind::kRun);
  EXPECT_EQ(endpoint.socket_dir, "/env");
  EXPECT_EQ(endpoint.tag, "weights");
}

}  // namespace
}  // namespace fo::cli::test
