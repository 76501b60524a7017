#include "pod/shell/shell_script.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "pod/json_node.h"

namespace fo::pod {
namespace {

// In a container with two known variables; "engine" is a known engine.
ShellScript read(std::string_view script) {
  static const Environment kEnvironment(test::node(
      R"({"env":[{"name":"POD_IP","valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}},
                 {"name":"MODEL","value":"small"}]})"));
  return read_shell_script(script, kEnvironment, [](const std::vector<std::string>& words) {
    return std::find(words.begin(), words.end(), "engine") != words.end();
  });
}

// The words separated by '|', with those that are not literal in <>; or the refusal.
std::string words_of(std::string_view script) {
  const ShellScript read_script = read(script);
  if (!read_script.refusal.empty()) return "refused: " + read_script.refusal;
  std::string text;
  for (const ShellWord& word : read_script.words) {
    if (!text.empty()) text += "|";
    text += word.literal ? word.value : "<" + word.value + ">";
  }
  return text;
}

struct Case {
  std::string_view script;
  std::string_view words;
};

TEST(ShellScript, ReadsOneCommand) {
  const Case cases[] = {
      {"a", "a"},
      {"  a\tb  c  ", "a|b|c"},
      {"exec a b", "a|b"},
      {"a 'b c' \"d e\" f\\ g", "a|b c|d e|f g"},
      {"a --x='{\"k\":1}'", "a|--x={\"k\":1}"},
      {"a 'it'\\''s'", "a|it's"},
      {"a \"q\\\"q\\\\ \\n\"", "a|q\"q\\ \\n"},
      {"a \\\n  --b \\\n  c", "a|--b|c"},
      {"a b\\\nc", "a|bc"},
      {"a \"b\\\nc\"", "a|bc"},
      {"a '' \"\"", "a||"},
      {"a # comment | with & everything\n", "a"},
      {"# comment\n\n\na b\n\n# end", "a|b"},
      {"a b#c", "a|b#c"},
      {"a b;", "a|b"},
      {"A=1 B='2 3' a b", "a|b"},
      {"a B=1", "a|B=1"},
      {"a $", "a|$"},
      {"a \"$\"", "a|$"},
      {"a '$(b)' '`c`' '$$x'", "a|$(b)|`c`|<$$x>"},
      {"a >log 2>&1 b", "a|b"},
      {"a b &>log", "a|b"},
      {"a < in >> out b", "a|b"},
      {"a b2>log", "a|b2"},
      {"a é", "a|é"},
  };
  for (const Case& one : cases) EXPECT_EQ(words_of(one.script), one.words) << one.script;
}

TEST(ShellScript, PassesOverPreparations) {
  const Case cases[] = {
      {"set -euo pipefail\nexport A=b\ncd /x\nexec a b", "a|b"},
      {"set -e; cd /x; a", "a"},
      {"cd /x && a b", "a|b"},
      {"cd /x &&\n  source v/bin/activate && exec a b", "a|b"},
      {"A=1; export A; . ./env; ulimit -n 10; umask 0; mkdir -p x; echo hi; a", "a"},
      {"export A=\"$B\" C=$D\na $A", "a|<$A>"},
  };
  for (const Case& one : cases) EXPECT_EQ(words_of(one.script), one.words) << one.script;
}

TEST(ShellScript, MarksWhatIsNoLiteral) {
  const Case cases[] = {
      {"a $B", "a|<$B>"},
      {"a --x=$B", "a|<--x=$B>"},
      {"a \"${B}\"", "a|<${B}>"},
      {"a ${B:-8000}", "a|<${B:-8000}>"},
      {"a $(POD_IP)", "a|<$(POD_IP)>"},
      {"a '$(POD_IP)'", "a|<$(POD_IP)>"},
      {"a '$(OTHER)'", "a|$(OTHER)"},
      {"a *.x b?c [d] ~/e f~", "a|<*.x>|<b?c>|<[d]>|<~/e>|f~"},
      {"a {b,c} {1..3} {b}", "a|<{b,c}>|<{1..3}>|{b}"},
      {"a '*' \\* \"?\"", "a|*|*|?"},
  };
  for (const Case& one : cases) EXPECT_EQ(words_of(one.script), one.words) << one.script;
}

TEST(ShellScript, RefusesWhatItDoesNotUnderstand) {
  const Case cases[] = {
      {"", "no command in it"},
      {"   # nothing\n", "no command in it"},
      {"A=1", "no command in it"},
      {"cd /x", "no command in it"},
      {"exec", "an 'exec' without a command"},
      {"exec -a x y", "options of 'exec'"},
      {"a || b", "an alternative: '||'"},
      {"a & wait", "a command in the background: '&'"},
      {"a &", "a command in the background: '&'"},
      {"a && b", "more than one command: something follows 'a'"},
      {"a; b", "more than one command: something follows 'a'"},
      {"a\nb", "more than one command: something follows 'a'"},
      {"a; cd x", "more than one command: something follows 'a'"},
      {"pip install x && a", "more than one command: something follows 'pip'"},
      {"(a)", "an unsupported command: '('"},
      {"a)", "a ')' in the wrong place"},
      {"f() { a; }; f", "an unsupported command: 'f()'"},
      {"{ a; }", "an unsupported command: '{'"},
      {"eval a", "an unsupported command: 'eval'"},
      {"command a", "an unsupported command: 'command'"},
      {"trap x TERM; a", "more than one command: something follows 'trap'"},
      {"if true; then a; fi", "an unsupported command: 'if'"},
      {"while true; do a; done", "an unsupported command: 'while'"},
      {"for i in 1 2; do a; done", "an unsupported command: 'for'"},
      {"case a in b) c;; esac", "an unsupported command: 'case'"},
      {"! a", "an unsupported command: '!'"},
      {"time a", "an unsupported command: 'time'"},
      {"[[ -n a ]] && a", "more than one command: something follows '[['"},
      {"a >", "a redirection without a target"},
      {"a 'b", "a quote that is not closed"},
      {"a \"b", "a quote that is not closed"},
      {"a b\\", "a '\\' at the end"},
      {"a \"$@\"", "arguments of the script: '$@'"},
      {"a $*", "arguments of the script: '$*'"},
      {"a $1", "arguments of the script: '$1'"},
      {"a $$", "a '$$'"},
      {"a $?", "a '$?'"},
      {"a $'b'", "a '$''"},
      {"a $\"b\"", "a '$\"'"},
      {"a ${B", "a variable expansion that is not closed"},
      {"$B c", "a command whose name is a variable"},
      {"a;; b", "a ';' in the wrong place"},
      // Refused beside an engine, too.
      {"a | b", "a pipe"},
      {"engine | b", "a pipe"},
      {"engine; sleep 5", "more than one command: something follows 'engine'"},
      {"engine a\nengine b", "more than one command: something follows 'engine'"},
      {"engine &\nwait", "a command in the background: '&'"},
      {"helper & exec engine", "a command in the background: '&'"},
      {"coproc engine", "a command in the background: 'coproc'"},
      {"engine || a", "more than one command: something follows 'engine'"},
      {"a || engine", "an alternative: '||'"},
      {"if a; then engine 1; else engine 2; fi", "an unsupported command: 'engine' within 'if'"},
      {"if a; then engine; fi; exec b", "an unsupported command: 'engine' within 'if'"},
      {"run() { engine \"$@\"; }\nrun --x", "an unsupported command: 'engine' within 'run()'"},
      {"(engine)", "an unsupported command: 'engine' within '('"},
      {"! engine", "an unsupported command: '!'"},
      {"eval engine", "an unsupported command: 'eval'"},
      {"exec engine \"$@\"", "arguments of the script: '$@'"},
      {"if a; then exec b", "a command without its 'fi'"},
      {"case a in b) c", "a command without its 'esac'"},
      {"case a in b", "a pattern that is not closed"},
      {"a <<", "a here-document without an end"},
      {"a $(b", "parentheses that are not closed"},
      {"a $(b\\", "a '\\' at the end"},
      {"A=(b", "parentheses that are not closed"},
      {"exec a $(cat <<E\n)\nE\n)", "a here-document within parentheses"},
      {"exec a $(case x in x) b;; esac)", "a 'case' within parentheses"},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(words_of(one.script), "refused: " + std::string(one.words)) << one.script;
  }
}

TEST(ShellScript, FindsTheEngineBehindWhatPreparesIt) {
  const Case cases[] = {
      {"pip install x && exec a", "a"},
      {"pip install x\nengine --y", "engine|--y"},
      {"test -f x || exit 1\nengine", "engine"},
      {"[ -n \"$X\" ] || { echo 'no X'; exit 1; }\nexec python3 -m engine 2>&1",
       "python3|-m|engine"},
      {"[[ $X == a* && -n ${Y:-} ]] || exit 1\nengine", "engine"},
      {"if [ -d /x ]; then\n  cp -r /x /y\nelif z; then\n  :\nelse\n  echo no\nfi\nengine --y",
       "engine|--y"},
      {"for i in 1 2 \"$X\"; do nc -z h $i; done; engine", "engine"},
      {"for ((i=0;i<3;i++)); do echo $i; done; engine", "engine"},
      {"until curl -sf http://h:1/; do sleep 1; done\nengine", "engine"},
      {"while read -r line; do echo $line; done < f\nengine", "engine"},
      {"case $X in\n  a|b) A=1;;\n  (c) case d in e) f; esac ;;\n  *) A=2\nesac\nengine", "engine"},
      {"log() { echo \"[$(date)] $*\" >&2; }\nlog start\nengine", "engine"},
      {"function log { echo; }; engine", "engine"},
      {"cat >/tmp/c <<'EOF'\nengine b; (\nEOF\nengine --c /tmp/c", "engine|--c|/tmp/c"},
      {"cat <<-A <<B >x\n\t1\n\tA\n2\nB\nengine", "engine"},
      {"exec > >(tee -a log) 2>&1\nexec engine", "engine"},
      {"echo 'engine starts' | tee log; engine", "engine"},
      {"echo engine; engine", "engine"},
      {"engine --y 2>&1 | tee -a log | sed s/a/b/", "engine|--y"},
      {"a 2>&1 |& tee log", "a"},
      {"ulimit -l unlimited || true\nengine", "engine"},
      {"export X=$(hostname -i)\nengine --host \"$X\"", "engine|--host|<$X>"},
      {"engine $(hostname -i) `b` $((1+1)) \"`c`\"",
       "engine|<$(hostname -i)>|<`b`>|<$((1+1))>|<`c`>"},
      {"engine ${B:-$(c)} ${#B} \"${A[@]}\"", "engine|<${B:-$(c)}>|<${#B}>|<${A[@]}>"},
      {"A=(--x 1)\nA+=(--y)\nengine \"${A[@]}\"", "engine|<${A[@]}>"},
      {"a <<EOF\nb\nEOF", "a"},
      {"a <<< b", "a"},
      {"a <(b | c) >(d)", "a|<<(b | c)>|<>(d)>"},
      {"(( N = 1 << 2 ))\nexec engine", "engine"},
      {"declare -a A=(x y)\nexec engine", "engine"},
      {"exec engine \"${X:-it's}\" b", "engine|<${X:-it's}>|b"},
  };
  for (const Case& one : cases) EXPECT_EQ(words_of(one.script), one.words) << one.script;
}

TEST(ShellScript, KnowsWhatVariablesStandFor) {
  const auto known = [](std::string_view script) {
    const ShellScript read_script = read(script);
    if (read_script.words.empty()) return "refused: " + read_script.refusal;
    return read_script.words.back().known.value_or("(unknown)");
  };
  const Case cases[] = {
      {"a $MODEL", "small"},
      {"a \"x/${MODEL}-1\"", "x/small-1"},
      {"a '$(MODEL)' ", "small"},
      {"a --x=$(MODEL)", "--x=small"},
      {"a \"${MODEL:-big}\"", "small"},
      {"a 'x $(MODEL) $(OTHER) $(MODEL)'", "x small $(OTHER) small"},
      {"a \"$MODEL $\"", "small $"},
      {"MODEL=other\na $MODEL", "other"},
      {"export X='{\"a\": 1}'\na \"$X\"", "{\"a\": 1}"},
      {"X=\na ${X:-8000}", "8000"},
      // Unknown, or perhaps not one word.
      {"a $OTHER", "(unknown)"},
      {"a $POD_IP", "(unknown)"},
      {"a ${OTHER:-8000}", "(unknown)"},
      {"X='b c'\na $X", "(unknown)"},
      {"X=\na $X", "(unknown)"},
      {"a $MODEL*", "(unknown)"},
      {"a f{$MODEL", "(unknown)"},
      {"a '$(MODEL) $(POD_IP)'", "(unknown)"},
      {"N=~/$MODEL\na $N", "(unknown)"},
      {"a $MODEL$(b)", "(unknown)"},
      {"MODEL=x a $MODEL", "small"},
      {"MODEL=1\nMODEL=2\na $MODEL", "(unknown)"},
      {"if b; then MODEL=1; fi; exec a $MODEL", "(unknown)"},
      {"b || MODEL=1\nexec a $MODEL", "(unknown)"},
      {"read MODEL < f\nexec a $MODEL", "(unknown)"},
      {". ./env\na $MODEL", "(unknown)"},
      {"unset MODEL\na $MODEL", "(unknown)"},
      {"MODEL+=1\na $MODEL", "(unknown)"},
      {"for MODEL in b; do :; done; exec a $MODEL", "(unknown)"},
      // Only certain in a list that ends with the engine.
      {"b && MODEL=1\nexec a $MODEL", "(unknown)"},
      {"b && N=1 && exec a $N", "1"},
      {"b || c && N=1 && exec a $N", "1"},
      {"b && N=1 || exec a $N", "refused: an alternative: '||'"},
      {"echo x | N=1\nexec a $N", "(unknown)"},
      {"export PORT=${PORT:-8000}\nexec a $PORT", "(unknown)"},
      {"export M=${MODEL:-big}\nexec a $M", "small"},
      {"N=\"$MODEL-1\"\nexec a $N", "small-1"},
      // Other ways to set a variable.
      {"let MODEL=1\nexec a $MODEL", "(unknown)"},
      {"(( MODEL = 1 ))\nexec a $MODEL", "(unknown)"},
      {"echo $(( MODEL += 1 ))\nexec a $MODEL", "(unknown)"},
      {"printf -v MODEL x\nexec a $MODEL", "(unknown)"},
      {"printf 'MODEL %s' x\nexec a $MODEL", "small"},
      {": ${MODEL:=x}\nexec a $MODEL", "(unknown)"},
      {"exec a ${MODEL:=x} $MODEL", "(unknown)"},
      {"declare -i N=1+1\nexec a $N", "(unknown)"},
      {"declare -a MODEL=(x y)\nexec a $MODEL", "(unknown)"},
      {"exec a <(cat x)", "(unknown)"},
  };
  for (const Case& one : cases) EXPECT_EQ(known(one.script), one.words) << one.script;
}

TEST(ShellScript, NamesTheVariablesThatAreSet) {
  const ShellScript script = read("A=1\nexport B=2 C D=3\nE+=4 F=5 a G=6");
  std::vector<std::string> names;
  for (const ShellVariable& variable : script.variables) names.push_back(variable.name);
  EXPECT_EQ(names, (std::vector<std::string>{"A", "B", "D", "E", "F"}));
}

TEST(ShellScript, KnowsWhatVariablesAreSetTo) {
  const ShellScript script = read("A='x y'\nexport B=$A C=\"\"\nD+=4 E=5=6 a");
  std::string text;
  for (const ShellVariable& variable : script.variables) {
    text += variable.name + (variable.literal ? "=" + variable.value : "?") + "|";
  }
  EXPECT_EQ(text, "A=x y|B?|C=|D?|E=5=6|");
}

TEST(ShellScript, TellsWhereAWordStands) {
  const std::string text = "exec a --x='1 2'\\''3' \"b\" # c";
  const ShellScript script = read(text);
  ASSERT_EQ(script.words.size(), 3U);
  const ShellWord& word = script.words[1];
  EXPECT_EQ(text.substr(word.begin, word.end - word.begin), "--x='1 2'\\''3'");
  EXPECT_EQ(text.substr(script.words[2].begin, 3), "\"b\"");
}

TEST(ShellScript, AnswersWhateverIsCutOff) {
  const std::string text =
      "set -e\nexport A=\"$B\" && exec python3 -m x --y='{\"a\":1}' ${C:-d} $(POD_IP) >log 2>&1 # "
      "e";
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const ShellScript script = read(text.substr(0, size));
    EXPECT_NE(script.words.empty(), script.refusal.empty()) << text.substr(0, size);
  }
}

TEST(ShellWord, IsReadBackAsItself) {
  for (const std::string& text :
       {std::string("8000"), std::string(""), std::string("a b"), std::string("it's"),
        std::string("{\"endpoint\":\"tcp://*:1\"}"), std::string("$x `y` \\ \"z\""),
        std::string("a\nb"), std::string("~"), std::string("#")}) {
    const ShellScript script = read("a " + shell_word(text));
    ASSERT_EQ(script.refusal, "") << text;
    ASSERT_EQ(script.words.size(), 2U) << text;
    EXPECT_EQ(script.words[1].value, text);
    EXPECT_TRUE(script.words[1].literal);
  }
  EXPECT_EQ(shell_word("--port=8001"), "--port=8001");
}

TEST(ShellScript, LooksForVariablesInQuotesNoFurtherThanANameGoes) {
  std::string open;
  for (int i = 0; i < 500'000; ++i) open += "$(";
  EXPECT_EQ(words_of("a '" + open + "'"), "a|" + open);
  // An unknown expansion is not literal.
  EXPECT_EQ(words_of("a '" + open + ")'"), "a|<" + open + ")>");
  EXPECT_EQ(words_of("a '$(b) $(POD_IP) $(c)'"), "a|<$(b) $(POD_IP) $(c)>");
  EXPECT_EQ(words_of("a '$(b) $(c'"), "a|$(b) $(c");
}

}  // namespace
}  // namespace fo::pod
