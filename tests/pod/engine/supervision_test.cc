#include "pod/engine/supervision.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "pod/pod_fixture.h"

namespace fo::pod {
namespace {

using test::Generated;
using test::kMainPath;
using test::kReadOnly;
using test::words;
using test::Worker;

constexpr PodLayout kLayouts[] = {PodLayout::kPlan, PodLayout::kDynamo};

Generated generate_supervised(const std::string& main, const GenerateOptions& options) {
  return Worker{.main = main}.generate(options);
}

GenerateOptions options_of(PodLayout layout, bool supervise, const std::string& engine = "") {
  GenerateOptions options;
  options.layout = layout;
  options.supervise = supervise;
  options.engine = engine;
  return options;
}

// The first error, or the command of engine 1, after "shadow mode: " if that variable is set,
// without the additions of layout dynamo.
std::string outcome(const Generated& made) {
  const std::string errors = made.errors();
  if (!errors.empty()) {
    const std::size_t begin = errors.starts_with(kMainPath) ? kMainPath.size() : 0;
    return errors.substr(begin, errors.find('\n') - begin);
  }
  std::string text = made.env("engine-1", kShadowMode) == "true" ? "shadow mode: " : "";
  const yaml::Node engine = made.container("engine-1");
  text += words(engine.find("command"));
  if (engine.find("args") != nullptr) text += " + " + words(engine.find("args"));
  for (const char* const part :
       {"|--master-port|29600", " + --master-port|29600", " --master-port 29600"}) {
    const std::size_t at = text.find(part);
    if (at != std::string::npos) text.erase(at, std::string_view(part).size());
  }
  return text;
}

const std::string kServesToo =
    "command: this engine does not wait for the lock: both would serve, on one port; use "
    "--supervise: fo-shadow takes the lock for both";
const std::string kOtherWorker =
    "command: only Dynamo's vLLM worker waits for the lock: both would serve; use --supervise";
const std::string kUntold =
    "command: it is unknown whether this engine waits for the lock: both might serve; use "
    "--supervise, or --engine dynamo for a worker dynamo.vllm, which takes the lock in its shadow "
    "mode";
const std::string kSayEngine = "command: it does not show which engine it starts; use --engine";
const std::string kNoCommand =
    "command: missing: the image's own entrypoint cannot run under fo-shadow; set the command, or "
    "leave out --supervise";
const std::string kTwoLocks =
    " in it would wait for the lock that fo-shadow holds; leave it out, or leave out --supervise";
const std::string kVllmOptions =
    "--load-format|gms|--worker-cls|gpu_memory_service.integrations.vllm.worker.GMSWorker|"
    "--enable-sleep-mode";
const std::string kSglangOptions = "--enable-memory-saver";
// With its weights in a GMS, and without.
const std::string kAsksAWorker =
    "--engine-url|http://127.0.0.1:9191|--prove|"
    "gms-probe http -q --timeout 5s --wait 20s --field endpoints.generate=ready "
    "http://127.0.0.1:9191/health|--|";
const std::string kColdGmsWorker = "fo-shadow|--engine|cold|--devices|0|" + kAsksAWorker;
const std::string kColdWorker = "fo-shadow|--engine|cold|--devices|0|--socket-dir||" + kAsksAWorker;

std::string api(const std::string& kind, int port, bool has_gms = true) {
  return "fo-shadow|--engine|" + kind + "|--devices|0" + (has_gms ? "" : "|--socket-dir|") +
         "|--engine-url|http://127.0.0.1:" + std::to_string(port + 2) +
         "|--publish|0.0.0.0:" + std::to_string(port) + "|--|";
}
std::string at_own_port(int port) { return "--host|127.0.0.1|--port|" + std::to_string(port + 2); }

TEST(Supervision, OneOfTwoEnginesServesInEveryLayout) {
  struct Row {
    std::string main;
    std::string alone;
    std::string supervised;
  };
  const Row rows[] = {
      {R"("command":["python3","-m","dynamo.vllm"])",
       "shadow mode: python3|-m|dynamo.vllm + --load-format|gms",
       kColdGmsWorker + "python3|-m|dynamo.vllm + --load-format|gms"},
      {R"("command":["sh","-c","exec python3 -m dynamo.vllm --model m"])",
       "shadow mode: sh|-c|exec python3 -m dynamo.vllm --model m --load-format gms",
       kColdGmsWorker + "sh|-c|exec python3 -m dynamo.vllm --model m --load-format gms"},
      {R"("command":["python3","-m","dynamo.sglang"])", kOtherWorker,
       kColdWorker + "python3|-m|dynamo.sglang"},
      {R"("command":["python3","-m","dynamo.trtllm"])", kOtherWorker,
       kColdWorker + "python3|-m|dynamo.trtllm"},
      {R"("command":["vllm","serve","m"])", kServesToo,
       api("vllm", 8000) + "vllm|serve|m + " + kVllmOptions + kReadOnly + "|" + at_own_port(8000)},
      {R"("command":["sh","-c"],"args":["exec vllm serve m"])", kServesToo,
       api("vllm", 8000) +
           "sh|-c + exec vllm serve m --load-format gms --worker-cls "
           "gpu_memory_service.integrations.vllm.worker.GMSWorker --enable-sleep-mode "
           "--model-loader-extra-config '{\"gms_read_only\":true}' --host 127.0.0.1 --port 8002"},
      {R"("command":["python3","-m","sglang.launch_server"])", kServesToo,
       api("cold", 30000, false) + "python3|-m|sglang.launch_server + " + kSglangOptions + "|" +
           at_own_port(30000)},
      {R"("command":["fo-refengine","serve"])", kServesToo,
       api("vllm", 8000) + "fo-refengine|serve + " + at_own_port(8000)},
      {R"("command":["/run.sh"])", kUntold, kSayEngine},
      {R"("args":["--model","m"])", kUntold, kNoCommand},
      // Already run by a program of this toolkit.
      {R"("command":["gms-lock","acquire","--exec","--","vllm","serve","m"])",
       "gms-lock|acquire|--exec|--|vllm|serve|m + " + kVllmOptions,
       "command: gms-lock" + kTwoLocks},
      {R"("command":["gms-lock","acquire","--","sh","-c","cd /w; python3 -m dynamo.sglang"])",
       "gms-lock|acquire|--|sh|-c|cd /w; python3 -m dynamo.sglang",
       "command: gms-lock" + kTwoLocks},
      {R"("command":["/fo-tools/bin/gms-lock","acquire","--","/run.sh"])",
       "/fo-tools/bin/gms-lock|acquire|--|/run.sh", "command: gms-lock" + kTwoLocks},
      {R"("command":["gms-lock","acquire","--","python3","-m","dynamo.sglang"])",
       "gms-lock|acquire|--|python3|-m|dynamo.sglang", "command: gms-lock" + kTwoLocks},
      {R"("command":["fo-shadow","--engine","cold","--","sglang","serve","m"])",
       "fo-shadow|--engine|cold|--|sglang|serve|m + " + kSglangOptions,
       "command: fo-shadow" + kTwoLocks},
      {R"j("command":["sh","-c","exec fo-shadow -- vllm serve m --port $PORT"])j",
       "sh|-c|exec fo-shadow -- vllm serve m --port $PORT --load-format gms --worker-cls "
       "gpu_memory_service.integrations.vllm.worker.GMSWorker --enable-sleep-mode "
       "--model-loader-extra-config '{\"gms_read_only\":true}'",
       "command: fo-shadow" + kTwoLocks},
      // They do not wait.
      {R"("command":["sh","-c","gms-lock acquire -- true; vllm serve m"])", kServesToo,
       api("vllm", 8000) +
           "sh|-c|gms-lock acquire -- true; vllm serve m --load-format gms --worker-cls "
           "gpu_memory_service.integrations.vllm.worker.GMSWorker --enable-sleep-mode "
           "--model-loader-extra-config '{\"gms_read_only\":true}' --host 127.0.0.1 --port 8002"},
      {R"("command":["sh","-c","gms-lock status && python3 -m dynamo.sglang | tee log"])",
       kOtherWorker, kColdWorker + "sh|-c|gms-lock status && python3 -m dynamo.sglang | tee log"},
      {R"("command":["fo-shadow","--no-failover","--","fo-refengine","serve"])", kServesToo,
       api("vllm", 8000) + "fo-shadow|--no-failover|--|fo-refengine|serve + " + at_own_port(8000)},
  };
  for (const Row& row : rows) {
    for (const PodLayout layout : kLayouts) {
      SCOPED_TRACE(row.main + (layout == PodLayout::kPlan ? " plan" : " dynamo"));
      EXPECT_EQ(outcome(generate_supervised(row.main, options_of(layout, false))), row.alone);
      EXPECT_EQ(outcome(generate_supervised(row.main, options_of(layout, true))), row.supervised);
    }
  }
}

TEST(Supervision, AnExplicitKindIsTaken) {
  struct Row {
    std::string main;
    std::string engine;
    std::string alone;
    std::string supervised;
  };
  const Row rows[] = {
      {R"("command":["/run.sh"])", "dynamo", "shadow mode: /run.sh",
       "fo-shadow|--engine|dynamo|--devices|0|--|/run.sh"},
      {R"("args":["--model","m"])", "dynamo", "shadow mode: none + --model|m", kNoCommand},
      {R"("command":["/run.sh"])", "vllm", kUntold,
       api("vllm", 8000) + "/run.sh + " + at_own_port(8000)},
      {R"("command":["/run.sh"])", "sglang", kUntold,
       api("sglang", 30000) + "/run.sh + " + at_own_port(30000)},
      {R"("command":["/run.sh"])", "cold", kUntold,
       api("cold", 8000, false) + "/run.sh + " + at_own_port(8000)},
      {R"("command":["vllm","serve","m"])", "dynamo", kServesToo,
       "fo-shadow|--engine|dynamo|--devices|0|--|vllm|serve|m + " + kVllmOptions + kReadOnly},
      {R"("command":["vllm","serve","m"])", "cold", kServesToo,
       api("cold", 8000) + "vllm|serve|m + " + kVllmOptions + "|" + at_own_port(8000)},
      {R"("command":["sglang","serve","m"])", "sglang", kServesToo,
       api("sglang", 30000) + "sglang|serve|m + " + kSglangOptions + "|" + at_own_port(30000)},
      {R"("command":["python3","-m","dynamo.vllm"])", "dynamo",
       "shadow mode: python3|-m|dynamo.vllm + --load-format|gms",
       "fo-shadow|--engine|dynamo|--devices|0|--|python3|-m|dynamo.vllm + --load-format|gms|"
       "--enable-sleep-mode" +
           kReadOnly},
      {R"("command":["python3","-m","dynamo.sglang"])", "dynamo", kOtherWorker,
       "fo-shadow|--engine|dynamo|--devices|0|--|python3|-m|dynamo.sglang"},
  };
  for (const Row& row : rows) {
    for (const PodLayout layout : kLayouts) {
      SCOPED_TRACE(row.main + " " + row.engine);
      EXPECT_EQ(outcome(generate_supervised(row.main, options_of(layout, false, row.engine))),
                row.alone);
      EXPECT_EQ(outcome(generate_supervised(row.main, options_of(layout, true, row.engine))),
                row.supervised);
    }
  }
}

// In every generated pod, each engine has one program that waits for the lock.
TEST(Supervision, NothingIsWrittenInWhichTwoServeOrNoneCan) {
  const std::string commands[] = {
      R"("python3","-m","dynamo.vllm")",
      R"("python3","-m","dynamo.sglang")",
      R"("vllm","serve","m")",
      R"("sglang","serve","m")",
      R"("fo-refengine","serve")",
      R"("/run.sh")",
      R"("sh","-c","python3 -m dynamo.vllm | tee log")",
      R"("sh","-c","if true; then vllm serve m; fi")",
      R"("gms-lock","acquire","--","python3","-m","dynamo.vllm")",
      R"("fo-shadow","--","fo-refengine","serve")",
      R"("sh","-c","gms-lock acquire -- true\nexec python3 -m dynamo.vllm")",
  };
  struct Mode {
    std::string env;
    std::string argument;
  };
  const Mode modes[] = {{"", ""},
                        {R"({"name":"DYN_VLLM_GMS_SHADOW_MODE","value":"true"})", ""},
                        {R"({"name":"DYN_VLLM_GMS_SHADOW_MODE","value":"0"})", ""},
                        {"", R"("--gms-shadow-mode")"},
                        {"", R"("--no-gms-shadow-mode")"}};
  int written = 0;
  for (const std::string& command : commands) {
    for (const Mode& mode : modes) {
      for (int bits = 0; bits < 12; ++bits) {
        for (const char* const engine : {"", "vllm", "dynamo", "cold"}) {
          GenerateOptions options = options_of(kLayouts[bits & 1], (bits & 2) != 0, engine);
          if (bits / 4 == 1) options.lock = LockKind::kLockd;
          if (bits / 4 == 2) options.gms = GmsProgram::kUpstream;
          const Generated made =
              generate_supervised("\"command\":[" + command + "],\"env\":[" + mode.env +
                                      "],\"args\":[" + mode.argument + "]",
                                  options);
          if (!made.errors().empty()) continue;
          ++written;
          SCOPED_TRACE(command + " " + mode.env + mode.argument + " " + engine + " " +
                       std::to_string(bits));
          for (const char* const name : {"engine-0", "engine-1"}) {
            const std::string all = words(made.container(name).find("command"));
            const bool is_ours = all.starts_with("fo-shadow|");
            const bool is_locked = all.starts_with("gms-lock|acquire|");
            // Words after a script are not arguments of the engine.
            const bool is_argument =
                !all.starts_with("sh|") && all.find("|sh|") == std::string::npos;
            const bool has_mode = made.env(name, kShadowMode) == "true" ||
                                  (is_argument && mode.argument == R"("--gms-shadow-mode")");
            EXPECT_EQ(int{is_ours} + int{is_locked} + int{has_mode}, 1) << all;
            EXPECT_FALSE(has_mode && is_argument && mode.argument == R"("--no-gms-shadow-mode")");
            // The program that waits finds its lock and, if it needs one, its GMS.
            EXPECT_FALSE(has_mode && options.lock == LockKind::kLockd);
            EXPECT_FALSE(options.supervise && options.gms == GmsProgram::kUpstream);
            EXPECT_EQ(all.find("fo-shadow", 1), std::string::npos);
          }
        }
      }
    }
  }
  EXPECT_GT(written, 200);
}

std::string errors_of(const std::string& main, const GenerateOptions& options) {
  std::string text = generate_supervised(main, options).errors();
  for (std::size_t at = 0; (at = text.find(kMainPath, at)) != std::string::npos;) {
    text.erase(at, kMainPath.size());
  }
  return text;
}

TEST(Supervision, ShadowModeIsRefusedUnderWhatHoldsTheLock) {
  const auto env = [](const std::string& entry) {
    return R"("command":["python3","-m","dynamo.vllm"],"env":[{"name":"DYN_VLLM_GMS_SHADOW_MODE",)" +
           entry + "}]";
  };
  const std::string reason = ": the engine would wait for the lock that fo-shadow holds for it; ";
  const std::string in_env = "env[DYN_VLLM_GMS_SHADOW_MODE]" + reason + "leave it out";
  const std::string in_command =
      "command: it sets DYN_VLLM_GMS_SHADOW_MODE" + reason + "leave that out";
  for (const PodLayout layout : kLayouts) {
    const auto supervised = [layout](const std::string& main) {
      return errors_of(main, options_of(layout, true));
    };
    EXPECT_EQ(supervised(env(R"("value":"true")")), in_env);
    EXPECT_EQ(supervised(env(R"("value":"1")")), in_env);
    EXPECT_EQ(supervised(env(R"j("value":"$(MODE)")j")), in_env);
    EXPECT_EQ(supervised(env(R"("valueFrom":{"fieldRef":{"fieldPath":"x"}})")), in_env);
    EXPECT_EQ(supervised(env(R"("value":"false")")), "");
    EXPECT_EQ(supervised(env(R"("value":"False")")), "");
    EXPECT_EQ(supervised(env(R"("value":"0")")), "");
    EXPECT_EQ(supervised(env(R"("value":"2")")), "");
    EXPECT_EQ(
        supervised(R"("command":["sh","-c","DYN_VLLM_GMS_SHADOW_MODE=1 python3 -m dynamo.vllm"])"),
        in_command);
    EXPECT_EQ(
        supervised(
            R"("command":["sh","-c","export DYN_VLLM_GMS_SHADOW_MODE=$M\npython3 -m dynamo.vllm"])"),
        in_command);
    EXPECT_TRUE(
        supervised(
            R"("command":["sh","-c","export DYN_VLLM_GMS_SHADOW_MODE=0\npython3 -m dynamo.vllm | x"])")
            .starts_with(in_command));
    EXPECT_EQ(
        supervised(R"("command":["sh","-c","DYN_VLLM_GMS_SHADOW_MODE=0 python3 -m dynamo.vllm"])"),
        "");
    EXPECT_EQ(
        supervised(
            R"("command":["env","DYN_VLLM_GMS_SHADOW_MODE=true","python3","-m","dynamo.vllm"])"),
        in_command);
    EXPECT_EQ(
        supervised(R"("command":["python3","-m","dynamo.vllm"],"args":["--gms-shadow-mode"])"),
        "args: --gms-shadow-mode" + reason + "leave it out");
    EXPECT_EQ(
        supervised(R"("command":["python3","-m","dynamo.vllm"],"args":["--no-gms-shadow-mode"])"),
        "");
    // With the user's own program, too.
    EXPECT_EQ(
        errors_of(
            R"("command":["gms-lock","acquire","--","python3","-m","dynamo.vllm","--gms-shadow-mode"])",
            options_of(layout, false)),
        "args: --gms-shadow-mode: the engine would wait for the lock that gms-lock holds for it; "
        "leave it out");
  }
}

TEST(Supervision, ShadowModeIsNeededByWhatHoldsTheLockItself) {
  const std::string without =
      "without its shadow mode the engine does not wait for the lock; leave ";
  for (const PodLayout layout : kLayouts) {
    const auto alone = [layout](const std::string& main) {
      return errors_of(main, options_of(layout, false));
    };
    const auto env = [&](const std::string& entry) {
      return alone(
          R"("command":["python3","-m","dynamo.vllm"],"env":[{"name":"DYN_VLLM_GMS_SHADOW_MODE",)" +
          entry + "}]");
    };
    const auto script = [&](const std::string& before) {
      return alone(R"("command":["sh","-c",")" + before + R"( python3 -m dynamo.vllm"])");
    };
    EXPECT_EQ(env(R"("value":"true")"), "");
    EXPECT_EQ(env(R"("value":"false")"),
              "env[DYN_VLLM_GMS_SHADOW_MODE]: 'false': " + without + "it out");
    EXPECT_EQ(env(R"("value":"0")"), "env[DYN_VLLM_GMS_SHADOW_MODE]: '0': " + without + "it out");
    // Replaced by the generated value.
    EXPECT_EQ(env(R"("valueFrom":{"fieldRef":{"fieldPath":"x"}})"), "");
    EXPECT_EQ(script("DYN_VLLM_GMS_SHADOW_MODE=true"), "");
    EXPECT_EQ(script("DYN_VLLM_GMS_SHADOW_MODE=off"),
              "command: it sets DYN_VLLM_GMS_SHADOW_MODE to 'off': " + without + "that out");
    EXPECT_EQ(script("DYN_VLLM_GMS_SHADOW_MODE=enabled"),
              "command: it sets DYN_VLLM_GMS_SHADOW_MODE to 'enabled': " + without + "that out");
    EXPECT_EQ(
        alone(R"("command":["env","DYN_VLLM_GMS_SHADOW_MODE=false","python3","-m","dynamo.vllm"])"),
        "command: it sets DYN_VLLM_GMS_SHADOW_MODE to 'false': " + without + "that out");
    EXPECT_EQ(script("export DYN_VLLM_GMS_SHADOW_MODE=$X;"),
              "command: it sets DYN_VLLM_GMS_SHADOW_MODE to an unknown value: a variable is in "
              "its value; leave that out");
    EXPECT_EQ(alone(R"("command":["python3","-m","dynamo.vllm","--no-gms-shadow-mode"])"),
              "args: --no-gms-shadow-mode: " + without + "it out");
    EXPECT_EQ(alone(R"("command":["python3","-m","dynamo.vllm","--gms-shadow-mode"])"), "");
  }
}

TEST(Supervision, WarnsOfWhatAStandbyCosts) {
  const auto warnings = [](const std::string& command, bool supervise,
                           const std::string& engine = "") {
    const Generated made = generate_supervised(
        "\"command\":[" + command + R"(],"env":[{"name":"DYN_NAMESPACE","value":"n"}])",
        options_of(PodLayout::kPlan, supervise, engine));
    const std::string text = made.warnings();
    return text.substr(text.starts_with(kMainPath) ? kMainPath.size() : 0);
  };
  const std::string cold =
      "command: the standby is started only when it has the lock (--engine cold): a worker of "
      "Dynamo's registers when it has started, before it can be put to sleep; ";
  const std::string both =
      "command: both workers are registered for a moment: each registers when it has started, "
      "before it can be put to sleep; run them cold, or make sure that clients handle it";
  const std::string kv =
      "command: with a GMS, a standby of SGLang waits for the lock of kv_cache without limit "
      "while the other one is awake; run it cold";
  const std::string files =
      "args: SGLang by itself loads its weights from files at each start; run dynamo.sglang "
      "--load-format gms to load them into the GMS";
  const std::string vllm = R"("python3","-m","dynamo.vllm")";
  const std::string sglang = R"("sglang","serve","m")";
  EXPECT_EQ(warnings(vllm, false), "");
  EXPECT_EQ(
      warnings(vllm, true),
      cold + "leave out --supervise: dynamo.vllm keeps a warm standby in its own shadow mode");
  EXPECT_EQ(warnings(vllm, true, "cold"), "");
  EXPECT_EQ(warnings(vllm, true, "dynamo"), both);
  EXPECT_EQ(warnings(R"("python3","-m","dynamo.sglang")", true),
            cold + "or use --engine dynamo: then the worker is registered for a moment");
  EXPECT_EQ(warnings(R"("/run.sh")", true, "dynamo"), both);
  EXPECT_EQ(warnings(sglang, true), files);
  EXPECT_EQ(warnings(sglang, true, "sglang"), kv + "\n" + kMainPath + files);
  EXPECT_EQ(warnings(R"("vllm","serve","m")", true), "");
  EXPECT_EQ(warnings(R"("fo-refengine","serve")", true), "");
  // The user's own fo-shadow.
  EXPECT_EQ(warnings(R"("fo-shadow","--engine","dynamo","--",)" + vllm, false), both);
  EXPECT_EQ(warnings(R"("fo-shadow","--engine=cold","--",)" + sglang, false), files);
  EXPECT_EQ(warnings(R"("fo-shadow","--","fo-refengine","serve")", false),
            "command: both engines would listen on the same port; use --supervise instead of your "
            "own fo-shadow, or a --port with $ENGINE_ID in it");
}

TEST(Supervision, AColdWorkerHasASystemPortOfItsOwn) {
  const Worker worker{.main = R"("command":["python3","-m","dynamo.sglang"])",
                      .others = R"({"name":"s","ports":[{"containerPort":9191}]})"};
  EXPECT_EQ(worker.generate(options_of(PodLayout::kPlan, true)).errors(),
            "f: spec.services.Decode.extraPodSpec.containers[0].ports[0]: 9191 for s (ports): "
            "engine-1 has this port (own DYN_SYSTEM_PORT); choose another port");
}

TEST(Supervision, AColdEngineIsAskedWithoutAKeyToo) {
  EXPECT_EQ(
      errors_of(R"("command":["sglang","serve","m","--api-key","k"])",
                options_of(PodLayout::kPlan, true)),
      "args: --api-key: fo-shadow queries the engine at a port, without this option; leave it out: "
      "the "
      "engine listens at 127.0.0.1 only; restrict access to the published port outside of the pod");
}

TEST(Supervision, SeesWhatAConfigMapSets) {
  Worker worker{.main =
                    R"("command":["vllm","serve","m"],"envFrom":[{"configMapRef":{"name":"c"}}])"};
  GenerateOptions options;
  options.supervise = true;
  worker.inputs = R"({"kind":"ConfigMap","metadata":{"name":"c"},"data":{"VLLM_API_KEY":"k"}})";
  EXPECT_NE(worker.generate(options).errors().find(
                "envFrom[VLLM_API_KEY]: fo-shadow queries the engine without this key"),
            std::string::npos);
  worker.inputs =
      R"({"kind":"ConfigMap","metadata":{"name":"c"},"data":{"DYN_VLLM_GMS_SHADOW_MODE":"true"}})";
  EXPECT_NE(worker.generate(options).errors().find("envFrom[DYN_VLLM_GMS_SHADOW_MODE]: the engine "
                                                   "would wait for the lock"),
            std::string::npos);
}

}  // namespace
}  // namespace fo::pod
