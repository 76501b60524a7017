// The values of options and their sources, and the output of --print-config.
#include "cli/config/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "cli/config/variables.h"
#include "some_tool.h"

namespace fo::cli::test {
namespace {

using base::ExitStatus;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

using Kind = ParseResult::Kind;

/// The tool, and more to set.
class SettingsTest : public SomeTool {
 protected:
  void declare(CLI::App& app) override {
    SomeTool::declare(app);
    remap_ = std::chrono::seconds(30);
    places_.clear();
    app.add_option("--place", places_, "a place")->allow_extra_args(false);
    add_remap_timeout(app, "--remap", remap_, "another time");
    app.add_flag("--loud", loud_, "shout")->excludes(app.get_option("--name"));
    app.add_option("-E,--exit-code", status_, "a status")->capture_default_str();
    add_variables(app, {"FO_TEST_ID"});
    add_variables(app, {"FO_TEST_SIM_*", "FO_TEST_ID"});
  }

  base::Duration remap_{};
  std::vector<std::string> places_;
  bool loud_ = false;
  int status_ = 75;
};

TEST_F(SettingsTest, KeysThatAreNearlyKnownAreRecognised) {
  const std::string file = config("tiemout = \"1s\"");
  EXPECT_EQ(
      failure_of([&] {
        parse_words({"--config", file});
      }).message,
      "read configuration '" + file + "': key 'tiemout': no such option; did you mean 'timeout'?");
  // A key that no file may set is not suggested.
  EXPECT_THAT(failure_of([&] {
                parse_words({"--config", config("confg = 1")});
              }).message,
              EndsWith("'confg': no such option"));
}

TEST_F(SettingsTest, OptionsThatAreNearlyKnownAreRecognised) {
  EXPECT_THAT(parse_words({"--tiemout=1s"}).text, EndsWith("; did you mean '--timeout'?"));
  EXPECT_THAT(parse_words({"-json"}).text, EndsWith("; did you mean '--json'?"));
  EXPECT_THAT(parse_words({"--print_config"}).text, EndsWith("; did you mean '--print-config'?"));
  EXPECT_THAT(parse_words({"--nothing"}).text, EndsWith("--nothing"));
  EXPECT_THAT(parse_words({"x", "--nothing", "y", "z"}).text, EndsWith("expected: --nothing"));
  EXPECT_THAT(parse_words({"x", "--", "--name"}).text, EndsWith("expected: --name"));
  EXPECT_THAT(parse_words({"--number", "--numbr"}).text, Not(HasSubstr("did you mean")));
}

TEST_F(SettingsTest, AFileGivesSeveralValuesOrNone) {
  const std::string file = config("place = [\"a,b\", \"-c\"]\nname = \"\"\n");
  ASSERT_EQ(parse_words({"--config", file, "input"}).kind, Kind::kRun);
  EXPECT_EQ(places_, (Words{"a,b", "-c"}));
  EXPECT_EQ(name_, "");
  EXPECT_EQ(file_, "input");
}

TEST_F(SettingsTest, WhatIsSoAnywayIsNoRivalInAFile) {
  const std::string file = config("loud = false\nname = \"default\"\nother = \"x\"\n");
  ASSERT_EQ(parse_words({"--config", file}).kind, Kind::kRun);
  EXPECT_EQ(other_, "x");
  EXPECT_EQ(parse_words({"--other", "x", "--name", "default"}).kind, Kind::kUsageError);
}

TEST_F(SettingsTest, ValuesAreNoOptions) {
  const std::string file = config("loud = true\nquiet = true\n");
  ASSERT_EQ(parse_words({"--config", file, "-E1", "--place", "-q"}).kind, Kind::kRun);
  EXPECT_TRUE(common_.quiet);
  EXPECT_EQ(parse_words({"-nhome/h.toml"}).kind, Kind::kRun);
  EXPECT_EQ(name_, "home/h.toml");
  EXPECT_EQ(parse_words({"-n", "--help"}).kind, Kind::kRun);
  EXPECT_EQ(parse_words({"--place", "--config", "--place", "none"}).kind, Kind::kRun);
  EXPECT_THAT(parse_words({"-vqh"}).text, HasSubstr("Usage:"));
}

TEST_F(SettingsTest, AnEmptyListSetsNothing) {
  EXPECT_THAT(parse_words({"--print-config", "--config", config("place = []")}).text,
              HasSubstr("# place: a place\n"));
  const std::string file = config("name = []");
  EXPECT_EQ(failure_of([&] {
              parse_words({"--config", file});
            }).message,
            "read configuration '" + file + "': name: needs a value");
}

TEST_F(SettingsTest, ComeFromOneFileWithAName) {
  for (const Words& words : {Words{"--config", ""}, Words{"--config="}}) {
    const Failure failure = failure_of([&] { parse_words(words); });
    EXPECT_EQ(failure.status, ExitStatus::kUsage);
    EXPECT_EQ(failure.message, "--config: needs a file");
  }
  const std::string file = config("");
  EXPECT_EQ(failure_of([&] {
              parse_words({"--config", file, "--config", file});
            }).message,
            "--config: only one file can be read");
}

TEST_F(SettingsTest, AVariableMayCountMilliseconds) {
  const ScopedVariable variable("GMS_REMAP_TIMEOUT_MS", "1500");
  ASSERT_EQ(parse_words({}).kind, Kind::kRun);
  EXPECT_EQ(remap_, std::chrono::milliseconds(1500));
  ASSERT_EQ(parse_words({"--remap", "2s"}).kind, Kind::kRun);
  EXPECT_EQ(remap_, std::chrono::seconds(2));
}

TEST_F(SettingsTest, AVariableThatCountsNothingIsAConfigurationError) {
  for (const char* const wrong : {"2s", "-1", "1e3", "99999999999999999999"}) {
    const ScopedVariable variable("GMS_REMAP_TIMEOUT_MS", wrong);
    const Failure failure = failure_of([&] { parse_words({}); });
    EXPECT_EQ(failure.status, ExitStatus::kConfig);
    EXPECT_EQ(failure.message, "read GMS_REMAP_TIMEOUT_MS '" + std::string(wrong) +
                                   "': not a number of milliseconds");
    EXPECT_EQ(parse_words({"--help"}).kind, Kind::kPrint);
    EXPECT_EQ(parse_words({"--remap", "2s"}).kind, Kind::kRun);
  }
}

TEST_F(SettingsTest, EachOptionHasAVariable) {
  const ScopedVariable place("GMS_X_PLACE", "here");
  const ScopedVariable status("GMS_X_EXIT_CODE", "-3");
  const ScopedVariable loud("GMS_X_LOUD", "true");
  EXPECT_EQ(parse_words({}).kind, Kind::kRun);
  EXPECT_EQ(places_, std::vector<std::string>{"here"});
  EXPECT_EQ(status_, -3);
  EXPECT_TRUE(loud_);
  // Flags take precedence, files do not.
  EXPECT_EQ(parse_words({"--place", "there", "--config", config("exit-code = 5")}).kind,
            Kind::kRun);
  EXPECT_EQ(places_, std::vector<std::string>{"there"});
  EXPECT_EQ(status_, -3);
  // A flag that excludes the variable's option takes precedence, too.
  loud_ = false;
  EXPECT_EQ(parse_words({"--name", "n"}).kind, Kind::kRun);
  EXPECT_FALSE(loud_);
}

TEST_F(SettingsTest, AVariableThatIsWrongIsBlamed) {
  const ScopedVariable status("GMS_X_EXIT_CODE", "many");
  const auto failure = failure_of([&] { parse_words({}); });
  EXPECT_EQ(failure.status, ExitStatus::kConfig);
  EXPECT_THAT(failure.message, StartsWith("read GMS_X_EXIT_CODE: "));
}

TEST_F(SettingsTest, AFileMayBeNamedByAVariable) {
  const ScopedVariable file("GMS_X_CONFIG", config("exit-code = 5"));
  EXPECT_EQ(parse_words({}).kind, Kind::kRun);
  EXPECT_EQ(status_, 5);
  EXPECT_EQ(parse_words({"--config", config("exit-code = 6")}).kind, Kind::kRun);
  EXPECT_EQ(status_, 6);
}

// Kubernetes sets them for a Service that has the tool's name.
TEST_F(SettingsTest, LinksToServicesAreNoSettings) {
  CLI::App app("", "gms-x");
  app.add_option("--port");
  const auto words = [&app] {
    Settings settings(app, {});
    settings.settle();
    return settings.reversed();
  };
  const ScopedVariable link("GMS_X_PORT", "tcp://10.0.0.1:80");
  EXPECT_EQ(words(), Words());
  const ScopedVariable port("GMS_X_PORT", "80");
  EXPECT_EQ(words(), (Words{"80", "--port"}));
}

TEST_F(SettingsTest, ArePrintedWithWhoSetThem) {
  const std::string file = config("number = 7\nplace = [\"a\", \"b\"]\ntags = \"weights\"\n");
  const ScopedVariable variable("FO_TEST_NAME", "some \"name\"");
  const ScopedVariable id("FO_TEST_ID", "3");
  const ScopedVariable sim("FO_TEST_SIM_DIR", "/sim");
  const ScopedVariable none("FO_TEST_SIM_NONE", "");
  const ParseResult result = parse_words(
      {"--print-config", "-vv", "--config", file, "--timeout", "1500ms", "--json=false", "input"});
  ASSERT_EQ(result.kind, Kind::kPrint);
  const auto line = [](std::string setting, const std::string& origin) {
    setting.resize(std::max<std::size_t>(setting.size(), 40), ' ');
    return setting + "  # " + origin + "\n";
  };
  EXPECT_EQ(result.text, line("name = \"some \\\"name\\\"\"", "environment FO_TEST_NAME") +
                             "# other: another\n" +                  //
                             line("timeout = \"1500ms\"", "flag") +  //
                             line("tags = \"weights\"", file) +      //
                             line("number = 7", file) +              //
                             line("place = [\"a\", \"b\"]", file) +  //
                             line("remap = \"30s\"", "default") +    //
                             line("loud = false", "default") +       //
                             line("exit-code = 75", "default") +     //
                             line("json = false", "flag") +          //
                             line("verbose = 2", "flag") +           //
                             line("quiet = false", "default") +      //
                             line("# FO_TEST_ID='3'", "environment") +
                             line("# FO_TEST_SIM_DIR='/sim'", "environment"));
}

TEST_F(SettingsTest, ArePrintedAsTheyAreReadBack) {
  const std::string first =
      parse_words({"--print-config", "--other", "a#b\n\t\"'\\", "--place", "x,y", "--place=-z",
                   "--place", "[b,c]", "--tags", "a,b", "-q", "--number=0"})
          .text;
  std::istringstream one(first);
  std::istringstream two(parse_words({"--print-config", "--config", config(first)}).text);
  std::string line;
  int lines = 0;
  for (std::string other; std::getline(one, line); ++lines) {
    ASSERT_TRUE(std::getline(two, other));
    EXPECT_EQ(line.substr(0, line.rfind("  # ")), other.substr(0, other.rfind("  # ")));
  }
  EXPECT_EQ(lines, 12);
  EXPECT_EQ(other_, "a#b\n\t\"'\\");
  EXPECT_EQ(places_, (Words{"x,y", "-z", "[b,c]"}));
}

TEST_F(SettingsTest, ThatNoFileCanHaveAreComments) {
  const std::string text = parse_words({"--print-config", "--name", "\xff"}).text;
  EXPECT_THAT(text, HasSubstr("# name = '\\xff', which is not UTF-8 "));
  EXPECT_EQ(parse_words({"--config", config(text)}).kind, Kind::kRun);
  EXPECT_EQ(name_, "default");
}

TEST_F(SettingsTest, NoNameOfAFileEndsAComment) {
  const std::string name = folder_.path("a\nb = 1");
  std::ofstream(name) << "number = 7\n";
  const std::string text = parse_words({"--print-config", "--config", name}).text;
  EXPECT_THAT(text, HasSubstr("/a\\x0ab = 1'\n"));
  EXPECT_EQ(parse_words({"--config", config(text)}).kind, Kind::kRun);
}

TEST_F(SettingsTest, ArePrintedAsOneObject) {
  const ScopedVariable variable("FO_TEST_NAME", "n");
  const ScopedVariable id("FO_TEST_ID", "3");
  const std::string text =
      parse_words({"--print-config", "--json", "-v", "-v", "--place", "a"}).text;
  EXPECT_THAT(text, HasSubstr("{\"environment\":{\"FO_TEST_ID\":\"3\"},\"options\":{"));
  EXPECT_THAT(text,
              HasSubstr(R"("name":{"from":"environment","value":"n","variable":"FO_TEST_NAME"})"));
  EXPECT_THAT(text, HasSubstr(R"("other":{"from":"default","value":null})"));
  EXPECT_THAT(text, HasSubstr(R"("place":{"from":"flag","value":["a"]})"));
  EXPECT_THAT(text, HasSubstr(R"("exit-code":{"from":"default","value":75})"));
  EXPECT_THAT(text, HasSubstr(R"("json":{"from":"flag","value":true})"));
  EXPECT_THAT(text, HasSubstr(R"("verbose":{"from":"flag","value":2})"));
  EXPECT_THAT(text, HasSubstr(R"("loud":{"from":"default","value":false})"));
  EXPECT_EQ(text.find('\n'), text.size() - 1);
}

TEST_F(SettingsTest, AreCheckedBeforeTheyArePrinted) {
  EXPECT_EQ(parse_words({"--print-config", "--number", "10"}).kind, Kind::kUsageError);
  EXPECT_EQ(parse_words({"--print-config", "--nothing"}).kind, Kind::kUsageError);
  EXPECT_EQ(failure_of([&] {
              parse_words({"--print-config", "--config", config("number = 10")});
            }).status,
            ExitStatus::kConfig);
  EXPECT_THAT(parse_words({"--print-config", "--help"}).text, HasSubstr("Usage:"));
}

TEST_F(SettingsTest, HelpNamesVariablesThatNoOptionStandsFor) {
  EXPECT_THAT(parse_words({"--help"}).text,
              EndsWith("\n\nEnvironment: GMS_X_* FO_TEST_ID FO_TEST_SIM_*\n"));
}

using SettingsOfSubcommands = SomeSubcommands;

TEST_F(SettingsOfSubcommands, ArePrintedWithoutThoseOfOthers) {
  const ScopedVariable variable("FO_TEST_VALUE", "environment");
  EXPECT_THAT(parse_words({"get", "--print-config"}).text, HasSubstr("value = \"environment\" "));
  EXPECT_THAT(parse_words({"put", "--print-config"}).text, Not(HasSubstr("value")));
  EXPECT_EQ(parse_words({"--print-config"}).kind, Kind::kUsageError);
}

TEST_F(SettingsOfSubcommands, ArePrintedWithoutWhatIsRequired) {
  EXPECT_EQ(parse_words({"put"}).kind, Kind::kUsageError);
  EXPECT_THAT(parse_words({"put", "--print-config"}).text, HasSubstr("# must: a must\n"));
}

TEST_F(SettingsOfSubcommands, AreRecognisedWhenNearlyKnown) {
  EXPECT_THAT(parse_words({"gett"}).text, EndsWith("; did you mean 'get'?"));
  EXPECT_THAT(parse_words({"complet"}).text, EndsWith("; did you mean 'completion'?"));
  EXPECT_THAT(parse_words({"get", "--vaule", "x"}).text, EndsWith("; did you mean '--value'?"));
  EXPECT_THAT(parse_words({"drop"}).text, Not(HasSubstr("did you mean")));
  EXPECT_THAT(parse_words({"--value", "x", "get"}).text, EndsWith("; it belongs after 'get'"));
  EXPECT_THAT(parse_words({"-v", "get"}).text, EndsWith("; it belongs after 'get'"));
  EXPECT_THAT(parse_words({"get", "completion"}).text, EndsWith("expected: completion"));
  EXPECT_THAT(parse_words({"get", "putt"}).text, EndsWith("expected: putt"));
}

}  // namespace
}  // namespace fo::cli::test
