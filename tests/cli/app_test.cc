#include "cli/app.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <new>
#include <stdexcept>

#include "cli/build_info.h"
#include "cli/screen/output.h"
#include "some_tool.h"

namespace fo::cli::test {
namespace {

using base::ExitStatus;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

using Kind = ParseResult::Kind;

using Parse = SomeTool;

TEST_F(Parse, DefaultsAreLeftAlone) {
  EXPECT_EQ(parse_words({}).kind, Kind::kRun);
  EXPECT_EQ(name_, "default");
  EXPECT_EQ(timeout_, std::chrono::seconds(30));
}

TEST_F(Parse, FlagsBeatEnvironmentBeatsFileBeatsDefaults) {
  const std::string file = config("name = \"file\"\ntimeout = \"1s\"\n");
  ASSERT_EQ(parse_words({"--config", file}).kind, Kind::kRun);
  EXPECT_EQ(name_, "file");
  EXPECT_EQ(timeout_, std::chrono::seconds(1));
  const ScopedVariable variable("FO_TEST_NAME", "environment");
  ASSERT_EQ(parse_words({"--config=" + file}).kind, Kind::kRun);
  EXPECT_EQ(name_, "environment");
  ASSERT_EQ(parse_words({"-n", "flag", "--config", file, "--timeout", "2s"}).kind, Kind::kRun);
  EXPECT_EQ(name_, "flag");
  EXPECT_EQ(timeout_, std::chrono::seconds(2));
}

TEST_F(Parse, AnEmptyVariableIsNoSetting) {
  const ScopedVariable variable("FO_TEST_NAME", "");
  ASSERT_EQ(parse_words({"--config", config("name = \"file\"")}).kind, Kind::kRun);
  EXPECT_EQ(name_, "file");
}

TEST_F(Parse, FlagsBeatRivalsFromElsewhere) {
  const ScopedVariable variable("FO_TEST_NAME", "environment");
  ASSERT_EQ(parse_words({"--other", "x"}).kind, Kind::kRun);
  EXPECT_EQ(other_, "x");
  EXPECT_EQ(name_, "default");
  other_.clear();
  ASSERT_EQ(parse_words({"--config", config("other = \"file\"")}).kind, Kind::kRun);
  EXPECT_EQ(other_, "");
  EXPECT_EQ(name_, "environment");
}

TEST_F(Parse, RivalsOnTheCommandLineAreAnError) {
  const ParseResult result = parse_words({"--other", "x", "--name", "y"});
  EXPECT_EQ(result.kind, Kind::kUsageError);
  EXPECT_THAT(result.text, HasSubstr("excludes"));
}

TEST_F(Parse, TheFileTakesListsNumbersAndBooleans) {
  const std::string file = config("tags = [\"a\", \"b\"]\nnumber = 7\njson = true\nverbose = 2\n");
  ASSERT_EQ(parse_words({"--config", file, "input"}).kind, Kind::kRun);
  EXPECT_EQ(tags_, (Words{"a", "b"}));
  EXPECT_EQ(number_, 7);
  EXPECT_TRUE(common_.json);
  EXPECT_EQ(common_.verbose, 2);
  EXPECT_EQ(file_, "input");
}

TEST_F(Parse, AFlagThatIsFalseInTheFileStaysOff) {
  ASSERT_EQ(parse_words({"--config", config("json = false\n")}).kind, Kind::kRun);
  EXPECT_FALSE(common_.json);
}

TEST_F(Parse, ABadValueInTheFileIsAConfigurationError) {
  const std::string file = config("timeout = \"soon\"\n");
  const Failure failure = failure_of([&] { parse_words({"--config", file}); });
  EXPECT_EQ(failure.status, ExitStatus::kConfig);
  EXPECT_EQ(failure.message, "read configuration '" + file +
                                 "': timeout: 'soon' is not a duration such as 500ms, 30s or 2m");
  EXPECT_EQ(failure_of([&] {
              parse_words({"--config", config("number = 10")});
            }).status,
            ExitStatus::kConfig);
}

TEST_F(Parse, UnknownKeysAreConfigurationErrors) {
  for (const char* key : {"nothing", "config", "print-config", "help", "n", "file"}) {
    EXPECT_EQ(failure_of([&] {
                parse_words({"--config", config(std::string(key) + " = \"x\"")});
              }).status,
              ExitStatus::kConfig)
        << key;
  }
}

TEST_F(Parse, HelpNeedsNoGoodFile) {
  EXPECT_EQ(parse_words({"--config", "/nonexistent", "--help"}).kind, Kind::kPrint);
}

TEST_F(Parse, UsageErrorsAreOneLine) {
  for (const Words& words : std::vector<Words>{{"--nothing"},
                                               {"--timeout", "soon"},
                                               {"--timeout"},
                                               {"--number", "10"},
                                               {"--number", "x"},
                                               {"--tags", "a,a"},
                                               {"one", "two"},
                                               {"--timeout", "1s", "--timeout", "2s"},
                                               {"--config"}}) {
    const ParseResult result = parse_words(words);
    EXPECT_EQ(result.kind, Kind::kUsageError) << words.front();
    EXPECT_THAT(result.text, Not(HasSubstr("\n")));
    EXPECT_NE(result.text, "");
  }
}

TEST_F(Parse, WordsAfterDashesAreACommandOrArguments) {
  ASSERT_EQ(parse_words({"--", "--name"}).kind, Kind::kRun);
  EXPECT_EQ(file_, "--name");
  ASSERT_EQ(parse_words({"--name", "x", "--", "cmd", "--help", "--", "y"}, true).kind, Kind::kRun);
  EXPECT_EQ(common_.command, (Words{"cmd", "--help", "--", "y"}));
  EXPECT_EQ(parse_words({"--"}, true).kind, Kind::kUsageError);
}

TEST_F(Parse, TheFileStaysBeforeTheDashes) {
  ASSERT_EQ(parse_words({"--config", config("number = 3"), "--", "--x"}).kind, Kind::kRun);
  EXPECT_EQ(number_, 3);
  EXPECT_EQ(file_, "--x");
}

TEST_F(Parse, HelpNamesDefaultsAndEnvironmentAndEndsWithHelpAndVersion) {
  const ParseResult result = parse_words({"--help"});
  ASSERT_EQ(result.kind, Kind::kPrint);
  EXPECT_THAT(result.text, HasSubstr("a name (default: default, env: FO_TEST_NAME)\n"));
  EXPECT_THAT(result.text, HasSubstr("a time (default: 30s)\n"));
  EXPECT_THAT(result.text, HasSubstr("  --number N "));
  EXPECT_THAT(result.text, Not(HasSubstr("Excludes")));
  EXPECT_THAT(
      result.text,
      EndsWith("\n  -h,--help, --version          print this help, or the version, and exit\n\n"
               "Environment: GMS_X_*\n"));
  EXPECT_EQ(parse_words({"--version"}).text, "gms-x 1.2.3 (" + std::string(build_info()) + ")\n");
}

using ParseSubcommands = SomeSubcommands;

TEST_F(ParseSubcommands, ReadTheFileToo) {
  const fo::test::TempDir folder;
  const std::string file = folder.path("c");
  std::ofstream(file) << "value = \"file\"\n";
  ASSERT_EQ(parse_words({"get", "--config", file, "--json"}).kind, Kind::kRun);
  EXPECT_EQ(value_, "file");
  EXPECT_TRUE(common_.json);
  const ScopedVariable variable("FO_TEST_VALUE", "environment");
  ASSERT_EQ(parse_words({"get", "--config", file}).kind, Kind::kRun);
  EXPECT_EQ(value_, "environment");
  ASSERT_EQ(parse_words({"get", "--config", file, "--value=flag"}).kind, Kind::kRun);
  EXPECT_EQ(value_, "flag");
  EXPECT_EQ(failure_of([&] {
              parse_words({"put", "--config", file});
            }).status,
            ExitStatus::kConfig);
}

TEST_F(ParseSubcommands, HaveHelpOfTheirOwn) {
  EXPECT_THAT(parse_words({"--help"}).text, HasSubstr("Subcommands:"));
  const std::string help = parse_words({"get", "--help"}).text;
  EXPECT_THAT(help, HasSubstr("--value"));
  EXPECT_THAT(help, HasSubstr("Usage: gms-x get [OPTIONS] [-- COMMAND [ARG]...]\n"));
  EXPECT_EQ(parse_words({"get", "--version"}).text, "gms-x 1 (" + std::string(build_info()) + ")\n");
}

TEST(Help, AnOptionWithoutADescriptionSharesTheLineOfTheOneBeforeIt) {
  const Tool tool{.name = "gms-x", .summary = "Do x", .version = "1"};
  CommonOptions common;
  std::string value;
  const auto declare = [&](CLI::App& app) {
    app.add_option("--first", value, "either")->group("Some");
    app.add_option("--second", value)->group("Some");
    app.add_option("--third", value, "another")->group("Others");
  };
  const std::string help = parse(tool, common, declare, {"--help"}).text;
  EXPECT_THAT(help, testing::ContainsRegex("\nSome:\n  --first, --second TEXT +either\n"));
  EXPECT_THAT(help, testing::ContainsRegex("\nOthers:\n  --third TEXT +another\n"));
}

TEST_F(ParseSubcommands, TakeACommandOrRefuseIt) {
  EXPECT_EQ(parse_words({"get", "--", "true"}).kind, Kind::kRun);
  EXPECT_EQ(common_.command, Words{"true"});
  const ParseResult result = parse_words({"put", "--must", "x", "f", "--", "true"});
  EXPECT_EQ(result.kind, Kind::kUsageError);
  EXPECT_EQ(result.text, "put takes no command");
  EXPECT_THAT(parse_words({"put", "--help"}).text, Not(HasSubstr("COMMAND")));
}

TEST_F(ParseSubcommands, OneIsNeeded) {
  EXPECT_EQ(parse_words({}).kind, Kind::kUsageError);
  EXPECT_EQ(parse_words({"drop"}).kind, Kind::kUsageError);
  EXPECT_EQ(parse_words({"drop"}).text, "unknown subcommand 'drop'; the subcommands are: get, put");
  EXPECT_THAT(parse_words({"gte"}).text, HasSubstr("did you mean 'get'?"));
  EXPECT_EQ(parse_words({"get", "put"}).kind, Kind::kUsageError);
}

class Run : public testing::Test {
 protected:
  /// Runs a tool whose body is `body`; stderr is kept.
  int run_tool(std::vector<std::string> words, const std::function<int()>& body,
               bool close_stdout = false) {
    words.insert(words.begin(), "gms-x");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    CommonOptions common;
    const Tool tool{.name = "gms-x", .summary = "Do x", .version = "1"};
    testing::internal::CaptureStderr();
    if (close_stdout) ::close(STDOUT_FILENO);
    const int status = run(
        static_cast<int>(argv.size()), argv.data(), tool, common, [](CLI::App&) {}, body);
    stderr_ = testing::internal::GetCapturedStderr();
    return status;
  }
  std::string stderr_;
};

TEST_F(Run, ReturnsWhatTheBodyReturns) {
  EXPECT_EQ(run_tool({}, [] { return 1; }), 1);
  EXPECT_EQ(stderr_, "");
}

TEST_F(Run, ReportsErrorsInOneLineWithTheirStatus) {
  EXPECT_EQ(
      run_tool({}, []() -> int { throw base::Error(ExitStatus::kBadData, "read 'x': too\nlong"); }),
      65);
  EXPECT_EQ(stderr_, "gms-x: error: read 'x': too long\n");
}

TEST_F(Run, UsageErrorsSayWhereToLook) {
  EXPECT_EQ(run_tool({"--nothing"}, [] { return 0; }), 64);
  EXPECT_EQ(stderr_,
            "gms-x: error: The following argument was not expected: --nothing\n"
            "Try 'gms-x --help'\n");
  EXPECT_EQ(run_tool({}, []() -> int { throw base::Error(ExitStatus::kUsage, "not that way"); }),
            64);
  EXPECT_EQ(stderr_, "gms-x: error: not that way\nTry 'gms-x --help'\n");
}

TEST_F(Run, OurBugsAre70AndMemoryIs71) {
  EXPECT_EQ(run_tool({}, []() -> int { throw std::logic_error("bug"); }), 70);
  EXPECT_EQ(stderr_, "gms-x: error: bug\n");
  EXPECT_EQ(run_tool({}, []() -> int { throw std::bad_alloc(); }), 71);
}

TEST_F(Run, QuietKeepsErrors) {
  EXPECT_EQ(run_tool({"-q"}, []() -> int { throw base::Error(ExitStatus::kNoInput, "gone"); }), 66);
  EXPECT_EQ(stderr_, "gms-x: error: gone\n");
}

TEST_F(Run, AClosedStdoutIsFoundAndNotTakenByTheNextFile) {
  std::fflush(stdout);
  const int saved = ::dup(STDOUT_FILENO);
  int next = -1;
  const auto body = [&] {
    next = ::open("/dev/zero", O_RDWR | O_CLOEXEC);
    print("result\n");
    return 0;
  };
  const int status = run_tool({}, body, true);
  ::close(next);
  ::dup2(saved, STDOUT_FILENO);
  ::close(saved);
  std::clearerr(stdout);
  EXPECT_GT(next, STDERR_FILENO);
  EXPECT_EQ(status, base::to_int(ExitStatus::kIoError));
  EXPECT_EQ(stderr_, "gms-x: error: write to standard output: Bad file descriptor\n");
}

}  // namespace
}  // namespace fo::cli::test
