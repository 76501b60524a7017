#include "pod/engine/engine_command.h"

#include <gtest/gtest.h>

#include <string>

#include "pod/json_node.h"

namespace fo::pod {
namespace {

using test::node;
using test::words;

using State = OptionValue::State;

std::string changed(const std::string& container, const std::string& option,
                    const std::string& value) {
  yaml::Node made = node(container);
  EngineCommand command(made);
  if (const auto reason = command.set(option, value)) return "refused: " + *reason;
  command.write_to(made);
  return words(made.find("command")) + " + " + words(made.find("args"));
}

TEST(EngineCommand, KnowsItsProgram) {
  const auto program = [](const std::string& container) {
    return EngineCommand(node(container)).program();
  };
  EXPECT_EQ(program(R"({"command":["python3","-m","dynamo.vllm"],"args":["--model","m"]})"),
            EngineProgram::kDynamoVllm);
  EXPECT_EQ(program(R"({"command":["python3"],"args":["-m","dynamo.sglang"]})"),
            EngineProgram::kDynamo);
  EXPECT_EQ(program(R"({"command":["/opt/bin/vllm","serve","m"]})"), EngineProgram::kVllm);
  EXPECT_EQ(program(R"({"command":["python","-m","vllm.entrypoints.openai.api_server"]})"),
            EngineProgram::kVllm);
  EXPECT_EQ(program(R"({"command":["python","-m","sglang.launch_server"]})"),
            EngineProgram::kSglang);
  EXPECT_EQ(program(R"({"command":["fo-refengine","serve","--model","m"]})"),
            EngineProgram::kRefEngine);
  EXPECT_EQ(program(R"({"command":["sh","-c"],"args":["cd /x && exec vllm serve m"]})"),
            EngineProgram::kVllm);
  EXPECT_EQ(program(R"({"command":["/start.sh"],"args":["vllm"]})"), EngineProgram::kUnknown);
  EXPECT_EQ(program(R"({"command":["sglang","serve"]})"), EngineProgram::kSglang);
  EXPECT_EQ(program(R"({"command":["python3","-mvllm.entrypoints.openai.api_server"]})"),
            EngineProgram::kVllm);
  // For scripts that cannot be parsed, derived from their words.
  EXPECT_EQ(program(R"({"command":["sh","-c","vllm serve m | tee log"]})"), EngineProgram::kVllm);
  EXPECT_EQ(program(R"({"command":["sh","-c","if true; then vllm serve m; fi"]})"),
            EngineProgram::kVllm);
  EXPECT_EQ(program(R"({"command":["tini","--","sh","-c","python3 -m dynamo.vllm"]})"),
            EngineProgram::kDynamoVllm);
  EXPECT_EQ(program(R"({"command":["sh","-c","run | tee log"]})"), EngineProgram::kUnknown);
  EXPECT_EQ(program("{}"), EngineProgram::kUnknown);
}

TEST(EngineCommand, FindsOptions) {
  const EngineCommand command(node(
      R"j({"command":["a","--x","1"],"args":["--y=2","--x","3","--kv_port","4","--z","$(Z)","--e"]})j"));
  EXPECT_EQ(command.find("--x").text, "3");
  EXPECT_EQ(command.find("--y").text, "2");
  EXPECT_EQ(command.find("--kv-port").text, "4");
  EXPECT_EQ(command.find("--none").state, State::kAbsent);
  EXPECT_EQ(command.find("--z").reason, "a variable is in its value");
  EXPECT_EQ(command.find("--e").reason, "it has no value");
}

TEST(EngineCommand, ChangesOptionsWhereTheyStand) {
  const std::string both = R"({"command":["a","--x","1","b"],"args":["--y=2"]})";
  EXPECT_EQ(changed(both, "--x", "9"), "a|--x|9|b + --y=2");
  EXPECT_EQ(changed(both, "--y", "9"), "a|--x|1|b + --y=9");
  EXPECT_EQ(changed(both, "--z", "9"), "a|--x|1|b + --y=2|--z|9");
  EXPECT_EQ(changed(R"({"command":["a"]})", "--z", "9"), "a + --z|9");
  EXPECT_EQ(changed(R"({"args":["--x","1"]})", "--x", "2"), "none + --x|2");
  EXPECT_EQ(changed("{}", "--z", "9"), "refused: the image's own arguments are not known");
  EXPECT_EQ(changed(R"j({"command":["a","--x","$(X)"]})j", "--x", "9"),
            "refused: a variable is in its value");
}

TEST(EngineCommand, ChangesScriptsWithinTheirText) {
  struct Case {
    std::string container;
    std::string result;
  };
  const Case cases[] = {
      {R"({"command":["sh","-c","exec a --x 1 b"]})", "sh|-c|exec a --x 9 b + none"},
      {R"({"command":["sh","-c"],"args":["a --x=1"]})", "sh|-c + a --x=9"},
      {R"({"command":["sh","-c"],"args":["a b"]})", "sh|-c + a b --x 9"},
      {R"({"command":["/bin/bash","-lc"],"args":["a b # end\n"]})",
       "/bin/bash|-lc + a b --x 9 # end\n"},
      {R"({"command":["bash","-euo","pipefail","-c","a \\\n  --b c\n"]})",
       "bash|-euo|pipefail|-c|a \\\n  --b c --x 9\n + none"},
      {R"({"command":["bash","--login","-c","a b >log 2>&1"]})",
       "bash|--login|-c|a b --x 9 >log 2>&1 + none"},
      {R"({"command":["sh","-c","a --x '1'","zero","one"]})", "sh|-c|a --x 9|zero|one + none"},
      {R"({"command":["bash","-O","extglob","-c","a"]})", "bash|-O|extglob|-c|a --x 9 + none"},
      {R"({"command":["bash"],"args":["-c","a"]})", "bash + -c|a --x 9"},
      {R"({"command":["sh","-c","--","a"]})", "sh|-c|--|a --x 9 + none"},
      {R"({"command":["sh","-xc","set -e\nA=1 a $A\n"]})",
       "sh|-xc|set -e\nA=1 a $A --x 9\n + none"},
      // Not a script: arguments of a script file.
      {R"({"command":["sh","run.sh"],"args":["b"]})", "sh|run.sh + b|--x|9"},
      {R"({"command":["bash","-l","run.sh"]})", "bash|-l|run.sh + --x|9"},
      {R"({"command":["sh","-c","a --x $X"]})", "refused: a variable is in its value"},
      {R"({"command":["sh","-c","a | b"]})", "refused: the script has a pipe"},
      {R"({"command":["sh","-c","a \"$@\"","--","--x","1"]})",
       "refused: the script has arguments of the script: '$@'"},
  };
  for (const Case& one : cases) EXPECT_EQ(changed(one.container, "--x", "9"), one.result);
}

TEST(EngineCommand, NeverGivesArgumentsThatAShellSwallows) {
  const std::string before = "refused: the script has a command before its shell: ";
  EXPECT_EQ(changed(R"({"command":["tini","--","bash","-c","a"]})", "--x", "9"), before + "'tini'");
  EXPECT_EQ(changed(R"({"command":["env","A=1","sh","-c"],"args":["a"]})", "--x", "9"),
            before + "'env'");
  EXPECT_EQ(changed(R"({"command":["busybox","sh","-c","a"]})", "--x", "9"), before + "'busybox'");
  EXPECT_EQ(changed(R"({"command":["/bin/zsh","-c","a"]})", "--x", "9"),
            "refused: the script has another shell than sh or bash: '/bin/zsh'");
  EXPECT_EQ(changed(R"({"command":["sh","-c","exec bash -c 'a b'"]})", "--x", "9"),
            "refused: the script has a nested script, of 'bash'");
}

TEST(EngineCommand, ReadsAScriptThatTheImagesEntrypointRuns) {
  EXPECT_EQ(changed(R"({"args":["bash","-c","a --x 1 b"]})", "--x", "9"),
            "none + bash|-c|a --x 9 b");
  EXPECT_EQ(EngineCommand(node(R"({"args":["sh","-c","a --x 1 | b"]})")).find("--x").state,
            State::kUnknown);
}

TEST(EngineCommand, AddsOptionsBeforeTheEndOfOptions) {
  EXPECT_EQ(changed(R"({"command":["vllm","serve","m"],"args":["--y","1","--","z"]})", "--x", "9"),
            "vllm|serve|m + --y|1|--x|9|--|z");
  EXPECT_EQ(changed(R"({"command":["vllm","serve","m","--"],"args":["z"]})", "--x", "9"),
            "vllm|serve|m|--x|9|-- + z");
  EXPECT_EQ(changed(R"({"command":["sh","-c","vllm serve m -- z"]})", "--x", "9"),
            "sh|-c|vllm serve m --x 9 -- z + none");
  // The program that runs it has arguments of its own.
  EXPECT_EQ(changed(R"({"command":["tini","--","vllm","serve","m"]})", "--x", "9"),
            "tini|--|vllm|serve|m + --x|9");
}

TEST(EngineCommand, AddsFlags) {
  const auto with_flag = [](const std::string& container) {
    yaml::Node made = node(container);
    EngineCommand command(made);
    if (const auto reason = command.set_flag("--f")) return "refused: " + *reason;
    command.write_to(made);
    return words(made.find("command")) + " + " + words(made.find("args"));
  };
  EXPECT_EQ(with_flag(R"({"command":["vllm","serve","m","--"],"args":["z"]})"),
            "vllm|serve|m|--f|-- + z");
  EXPECT_EQ(with_flag(R"({"command":["vllm"],"args":["serve","--f"]})"), "vllm + serve|--f");
  EXPECT_EQ(with_flag(R"({"command":["sh","-c","a b >log"]})"), "sh|-c|a b --f >log + none");
  EXPECT_EQ(with_flag(R"({"command":["sh","-c","a --f $X"]})"), "sh|-c|a --f $X + none");
  EXPECT_EQ(with_flag(R"({"command":["sh","-c","a | b"]})"), "refused: the script has a pipe");
  EXPECT_EQ(with_flag("{}"), "refused: the image's own arguments are not known");
}

TEST(EngineCommand, KnowsWhatItRunsUnder) {
  const auto waiter = [](const std::string& command) {
    const EngineWaiter found = EngineCommand(node("{\"command\":[" + command + "]}")).waiter();
    const std::string engine = found.engine.empty() ? "" : " " + found.engine;
    return found.kind == EngineWaiter::Kind::kLock     ? "lock"
           : found.kind == EngineWaiter::Kind::kShadow ? "shadow" + engine
                                                       : "none";
  };
  const auto script = [&](const std::string& text) {
    return waiter(R"("sh","-c",")" + text + '"');
  };
  EXPECT_EQ(waiter(R"("gms-lock","acquire","--exec","--","vllm","serve")"), "lock");
  EXPECT_EQ(waiter(R"("tini","--","/bin/gms-lock","acquire","-q","--","run")"), "lock");
  EXPECT_EQ(waiter(R"("gms-lock","acquire","--","sh","-c","a; vllm serve | b")"), "lock");
  EXPECT_EQ(waiter(R"("fo-shadow","--","vllm","serve")"), "shadow");
  EXPECT_EQ(waiter(R"("fo-shadow","--engine","cold","--","vllm","serve","--engine","x")"),
            "shadow cold");
  EXPECT_EQ(waiter(R"("fo-shadow","--engine=sglang","--","vllm","serve")"), "shadow sglang");
  EXPECT_EQ(waiter(R"("fo-shadow","--no-failover","--","vllm","serve")"), "none");
  EXPECT_EQ(waiter(R"("gms-lock","status")"), "none");
  EXPECT_EQ(waiter(R"("vllm","serve","gms-lock","acquire","--")"), "none");
  EXPECT_EQ(script("cd /w && exec gms-lock acquire -- vllm serve m"), "lock");
  // Scripts that cannot be parsed.
  EXPECT_EQ(script("gms-lock acquire -- vllm serve m | tee log"), "lock");
  EXPECT_EQ(script("gms-lock acquire -- bash -c 'cd /w; vllm serve m' 2>&1 | tee log"), "lock");
  EXPECT_EQ(script("gms-lock acquire \\\\\\n  -- vllm serve m | tee log"), "lock");
  EXPECT_EQ(script("if true; then fo-shadow -- vllm serve m; fi"), "shadow");
  EXPECT_EQ(script("gms-lock acquire -- true; vllm serve m"), "none");
  EXPECT_EQ(script("gms-lock acquire -- true\\nvllm serve m"), "none");
  EXPECT_EQ(script("gms-lock acquire -- true && vllm serve m | tee log"), "none");
}

TEST(EngineCommand, FindsVariablesThatMayBeOptions) {
  const auto open = [](const std::string& script, const std::string& env) {
    return EngineCommand(node(R"({"command":["sh","-c",")" + script + R"("],"env":[)" + env + "]}"))
        .open_variable();
  };
  EXPECT_EQ(open("a $ARGS", R"({"name":"ARGS","value":"--x 1"})"), "$ARGS");
  EXPECT_EQ(open("a ${ARGS}", R"({"name":"ARGS","valueFrom":{"x":"y"}})"), "${ARGS}");
  EXPECT_EQ(open("a --model $M", R"({"name":"M","value":"--x 1"})"), "$M");
  EXPECT_EQ(open("a $M", R"({"name":"M","value":"m"})"), "");
  EXPECT_EQ(open("a --model $M", ""), "");
  EXPECT_EQ(open("a $M", ""), "$M");
  EXPECT_EQ(open(R"(a \"$M\")", ""), "");
}

TEST(EngineCommand, QuotesWhatItPutsIntoAScript) {
  EXPECT_EQ(changed(R"({"command":["sh","-c","a --x '{\"k\": \"it'\\''s\"}' b"]})", "--x",
                    "{\"k\":\"it's $1\"}"),
            "sh|-c|a --x '{\"k\":\"it'\\''s $1\"}' b + none");
}

TEST(EngineCommand, LeavesAScriptAloneWithNothingToChange) {
  const std::string container = R"({"command":["sh","-c","a  --x   '9' "]})";
  EXPECT_EQ(changed(container, "--x", "9"), "sh|-c|a  --x   '9'  + none");
}

TEST(EngineCommand, DoesNotSayAnOptionIsAbsentThatMayBeThere) {
  const EngineCommand piped(node(R"({"command":["sh","-c","a --master_port 1 | b"]})"));
  EXPECT_EQ(piped.find("--master-port").reason, "the script has a pipe");
  EXPECT_EQ(piped.find("--nccl-port").state, State::kAbsent);
  const EngineCommand passed(node(R"({"command":["sh","-c","a \"$@\"","--","--x","1"]})"));
  EXPECT_EQ(passed.find("--x").state, State::kUnknown);
}

TEST(EngineCommand, KnowsWhatVariablesItSets) {
  const auto value = [](const std::string& container) {
    const EngineCommand command{node(container)};
    const OptionValue found = command.variable("PORT");
    EXPECT_EQ(command.sets_variable("PORT"), found.state != State::kAbsent);
    return found.state == State::kAbsent  ? "(absent)"
           : found.state == State::kKnown ? found.text
                                          : found.reason;
  };
  EXPECT_EQ(value(R"({"command":["sh","-c","PORT=1 a"]})"), "1");
  EXPECT_EQ(value(R"({"command":["sh","-c","export PORT=1\na"]})"), "1");
  EXPECT_EQ(value(R"({"command":["sh","-c","export PORT=1\nPORT='2 3' a"]})"), "2 3");
  EXPECT_EQ(value(R"({"command":["sh","-c","exec env PORT=1 a"]})"), "1");
  EXPECT_EQ(value(R"({"command":["sh","-c","PORT=1 exec env PORT=2 a"]})"), "2");
  EXPECT_EQ(value(R"({"command":["env","PORT=1","a"]})"), "1");
  EXPECT_EQ(value(R"({"command":["env","PORT=1","sh","-c","a | b"]})"), "1");
  EXPECT_EQ(value(R"({"command":["tini","--","env","A=2","PORT=1","vllm","serve"]})"), "1");
  EXPECT_EQ(value(R"({"command":["sh","-c","PORT=$X a"]})"), "a variable is in its value");
  EXPECT_EQ(value(R"({"command":["sh","-c","PORT=1 a | b"]})"), "the script has a pipe");
  EXPECT_EQ(value(R"({"command":["sh","-c","export PORT=1\na | b"]})"), "the script has a pipe");
  for (const char* const container :
       {R"({"command":["a"]})", R"({"command":["vllm","serve","env","PORT=1"]})",
        R"({"command":["a","PORT=1"]})", R"({"command":["sh","-c","a $PORT"]})"}) {
    EXPECT_EQ(value(container), "(absent)") << container;
  }
}

}  // namespace
}  // namespace fo::pod
